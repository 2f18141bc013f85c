# What the scripts that make an environment for a library to be measured beside Milkweed share. To be sourced, from
# the repository root, with NAME (of the environment: .venv-NAME) and WHAT (goes into it, with its versions) set.
# Where the environment is there already, it ends the script; else it makes an empty one. build/NAME.failed says why
# it cannot be made.
VENV=.venv-$NAME
STAMP=$VENV/milkweed-setup
LOG=build/setup-$NAME.log
FAILED=build/$NAME.failed

say() { printf 'setup-%s: %s\n' "$NAME" "$*" >&2; }
fail() {
    echo "$*" >"$FAILED"
    say "$* (all of pip's words: $LOG)"
    exit 1
}
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check install --no-input "$@" >>"$LOG" 2>&1; }
finish() { # MODULE: what must be importable
    "$VENV/bin/python" -c "import $1" >>"$LOG" 2>&1 || fail "$1 cannot be imported"
    echo "$stamp" >"$STAMP"
    say "done"
}

mkdir -p build
stamp="$PWD $WHAT"
[[ -f $STAMP && $(<"$STAMP") == "$stamp" ]] && "$VENV/bin/python" -c '' 2>/dev/null && exit
exec 9>"build/setup-$NAME.lock"
flock 9
[[ -f $STAMP && $(<"$STAMP") == "$stamp" ]] && exit
rm -f "$FAILED" "$STAMP"
: >"$LOG"
say "$WHAT into $VENV"
"${PYTHON:-.venv/bin/python}" -m venv --clear "$VENV" >>"$LOG" 2>&1 || fail "no virtual environment could be made"
