#!/usr/bin/env bash
# Makes .venv-monarch at the repository root: torchmonarch and the torch of scripts/setup.sh, to be measured beside
# Milkweed. Needs .venv. Where it cannot be made, build/monarch.failed says why, and the status is 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

MONARCH=0.7.0
TORCH=$(sed -n 's/^TORCH=//p' scripts/setup.sh)
VENV=.venv-monarch
STAMP=$VENV/milkweed-setup
LOG=build/setup-monarch.log
FAILED=build/monarch.failed

say() { printf 'setup-monarch: %s\n' "$*" >&2; }
fail() {
    echo "$*" >"$FAILED"
    say "$* (all of pip's words: $LOG)"
    exit 1
}
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check install --no-input "$@" >>"$LOG" 2>&1; }

mkdir -p build
stamp="$PWD $MONARCH $TORCH"
[[ -f $STAMP && $(<"$STAMP") == "$stamp" ]] && "$VENV/bin/python" -c '' 2>/dev/null && exit
exec 9>build/setup-monarch.lock
flock 9
[[ -f $STAMP && $(<"$STAMP") == "$stamp" ]] && exit
rm -f "$FAILED" "$STAMP"
: >"$LOG"

say "torchmonarch $MONARCH and torch $TORCH into $VENV"
"${PYTHON:-.venv/bin/python}" -m venv --clear "$VENV" >>"$LOG" 2>&1 || fail "no virtual environment could be made"
pip "torch==$TORCH+cpu" || pip "torch==$TORCH" || fail "torch $TORCH could not be installed"
pip "torchmonarch==$MONARCH" || fail "torchmonarch $MONARCH could not be installed"
"$VENV/bin/python" -c 'import monarch.actor' >>"$LOG" 2>&1 || fail "torchmonarch $MONARCH cannot be imported"
echo "$stamp" >"$STAMP"
say "done"
