#!/usr/bin/env bash
# Runs tests of native code with modules that were built for a sanitizer: for each of "address" and "thread" that is
# named, in a build folder of its own. A report of any process fails it. WORKERS: how many tests at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

BIN=$(realpath -s "${BIN:-.venv/bin}")
export PATH=$BIN:$PATH
# Not those that import torch, or start agents of a program's own: what they do with native code, others do too.
TESTS=(tests/runtime/test_native.py
    tests/runtime/memory/test_{transfers,sockets,lifetimes,falling_back,stress,zero_copy}.py)

# A package like src/milkweed, with the modules of build folder $1 in place of the installed ones.
shadow() {
    local package=$1/src/milkweed entry
    rm -rf "$package"
    mkdir -p "$package/runtime"
    ln -s "$PWD"/src/milkweed/{__init__.py,py.typed} "$PWD/server" "$PWD/tools" "$package/"
    for entry in runtime/*; do
        case $entry in *.so | */__pycache__) ;; *) ln -s "$PWD/$entry" "$package/runtime/" ;; esac
    done
    ln -s "$PWD/$1"/_native*.so "$package/runtime/"
}

build() {
    cmake -S . -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DMILKWEED_SANITIZE="$1" -DPython_EXECUTABLE="$BIN/python" &&
        cmake --build "$2"
}

for kind in "$@"; do
    folder=build/$kind-sanitizer
    mkdir -p "$folder"
    if ! build "$kind" "$folder" >"$folder/build.log" 2>&1; then
        tail -n 40 "$folder/build.log" >&2
        exit 1
    fi
    shadow "$folder"
    sanitized=("$BIN/python" scripts/sanitized.py "$kind" env "PYTHONPATH=$PWD/$folder/src" "$BIN/python")
    "${sanitized[@]}" -c "from milkweed.runtime import _native_memory as it; assert '$kind' in it.__file__, it.__file__"
    "${sanitized[@]}" -m pytest -q -n "${WORKERS:-2}" -p no:cacheprovider "${TESTS[@]}"
done
