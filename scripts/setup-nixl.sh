#!/usr/bin/env bash
# Makes .venv-nixl at the repository root: NIXL without what it depends on, and numpy, to be measured beside Milkweed.
# Needs .venv. Where it cannot be made, build/nixl.failed says why, and the status is 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

NIXL=1.5.1
VENV=.venv-nixl
STAMP=$VENV/milkweed-setup
LOG=build/setup-nixl.log
FAILED=build/nixl.failed

say() { printf 'setup-nixl: %s\n' "$*" >&2; }
fail() {
    echo "$*" >"$FAILED"
    say "$* (all of pip's words: $LOG)"
    exit 1
}
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check install --no-input "$@" >>"$LOG" 2>&1; }

mkdir -p build
stamp="$PWD $NIXL"
[[ -f $STAMP && $(<"$STAMP") == "$stamp" ]] && "$VENV/bin/python" -c '' 2>/dev/null && exit
exec 9>build/setup-nixl.lock
flock 9
[[ -f $STAMP && $(<"$STAMP") == "$stamp" ]] && exit
rm -f "$FAILED" "$STAMP"
: >"$LOG"

say "nixl-cu12 $NIXL into $VENV"
"${PYTHON:-.venv/bin/python}" -m venv --clear "$VENV" >>"$LOG" 2>&1 || fail "no virtual environment could be made"
pip numpy || fail "numpy could not be installed"
pip --no-deps "nixl-cu12==$NIXL" || fail "nixl-cu12 $NIXL could not be installed"
"$VENV/bin/python" -c 'import nixl_cu12._api' >>"$LOG" 2>&1 || fail "nixl-cu12 $NIXL cannot be imported"
echo "$stamp" >"$STAMP"
say "done"
