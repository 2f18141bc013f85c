#!/usr/bin/env bash
# Makes .venv at the repository root: Milkweed as an editable install, CPU torch, the development tools.
# Done again only when something that it depends on has changed. PYTHON names the interpreter to start from.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

TORCH=2.13.0
VENV=.venv
STAMP=$VENV/milkweed-setup
LOG=build/setup.log

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }
# shellcheck source=scripts/apt.sh
source scripts/apt.sh

stamp() {
    {
        printf '%s\n' "$PWD" "$TORCH"
        sha256sum pyproject.toml CMakeLists.txt scripts/setup.sh scripts/apt.sh scripts/build_backend.py src/milkweed/__init__.py
        find runtime/native -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum | cut -d ' ' -f 1
}

is_done() {
    [[ -f $STAMP && $(<"$STAMP") == "$(stamp)" ]] &&
        compgen -G 'runtime/_native*.so' >/dev/null && "$VENV/bin/python" -c '' 2>/dev/null
}

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && is_recent "$candidate"; then
            echo "$candidate"
            return
        fi
    done
}

# Prints the Debian packages that are needed and missing, for the interpreter $1 (empty: none found).
missing_packages() {
    local python=$1
    if [[ -z $python ]]; then
        echo python3 python3-venv python3-dev
    else
        "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
        "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || echo python3-dev
    fi
    command -v c++ >/dev/null || command -v g++ >/dev/null || echo g++
    command -v ip >/dev/null || [[ -x /sbin/ip || -x /usr/sbin/ip ]] || echo iproute2
}

# Those of mounts: for the binding to libfuse, which is built here, and to mount as a user.
missing_mount_packages() {
    command -v fusermount3 >/dev/null || echo fuse3
    command -v pkg-config >/dev/null || echo pkg-config
    pkg-config --exists fuse3 2>/dev/null || echo libfuse3-dev
}

install_packages() {
    local packages=("$@")
    apt_install "${packages[@]}" && return
    if [[ ${packages[*]} == iproute2 ]]; then
        say "iproute2 is missing: hosts isolated by namespaces will be refused (apt-get install iproute2)"
    else
        fail "missing: ${packages[*]}. Run as root: apt-get install ${packages[*]}"
    fi
}

# Installs with pip as it is configured here. Its words go to the log, and to the terminal when it fails.
pip_install() {
    local from
    from=$(wc -l <"$LOG")
    "$VENV/bin/python" -m pip --disable-pip-version-check install --no-input "$@" >>"$LOG" 2>&1 && return
    tail -n "+$((from + 1))" "$LOG" | grep -v '^WARNING: Location' | tail -n 30 >&2
    fail "pip install $* failed; all of its words are in $LOG"
}

install_torch() {
    local have
    have=$("$VENV/bin/python" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null || true)
    [[ ${have%%+*} == "$TORCH" ]] && return
    say "torch $TORCH, the CPU build where it can be had"
    (pip_install "torch==$TORCH+cpu") 2>/dev/null && return
    say "no torch $TORCH+cpu in the configured indexes; taking torch $TORCH"
    pip_install "torch==$TORCH"
}

# The binding is built here: it has no wheels. Without it a workspace is copied to hosts, and tests of mounts are skipped.
install_mount_binding() {
    local packages binding
    mapfile -t packages < <(missing_mount_packages)
    binding=$("$VENV/bin/python" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["mount"])')
    if [[ ${#packages[@]} -gt 0 ]] && ! apt_install "${packages[@]}"; then
        say "hosts cannot mount: ${packages[*]} missing (apt-get install ${packages[*]})"
    elif ! (pip_install "$binding") 2>/dev/null; then
        say "hosts cannot mount: $binding could not be built; all words are in $LOG"
    fi
}

build_requirements() {
    "$VENV/bin/python" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], "cmake>=3.19", "ninja", sep="\n")'
}

mkdir -p build
is_done && exit
exec 9>build/setup.lock
flock 9
is_done && exit
: >"$LOG"

python=$(find_python)
mapfile -t packages < <(missing_packages "$python")
if [[ ${#packages[@]} -gt 0 ]]; then
    # shellcheck disable=SC2046,SC2086  # one word a package
    install_packages ${packages[*]}
    python=$(find_python)
    [[ -n $python ]] || fail "no Python 3.11 or later: name one with PYTHON=/path/to/python3"
fi

rm -f "$STAMP"
if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || ! is_recent "$VENV/bin/python"; then
    say "$VENV from $("$python" --version)"
    "$python" -m venv --clear "$VENV" || fail "$python -m venv failed. Run as root: apt-get install python3-venv"
fi
install_torch
say "Milkweed and its development tools"
mapfile -t requirements < <(build_requirements)
pip_install "${requirements[@]}"
install_mount_binding
pip_install --no-build-isolation --editable '.[dev,torch]'
stamp >"$STAMP"
say "done: $VENV/bin/milkweed"
