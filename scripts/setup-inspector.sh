#!/usr/bin/env bash
# Makes build/inspector for `make test-inspector`: Node 22, and at the versions of tests/server/inspector's lock file
# the MCP Inspector, the conformance suite and a driver of Chromium; and sees to a Chromium, Debian's package.
# Node and npm come as tarballs of npm's registry: that needs neither of them, and what systems have is too old.
# Done again only when something that it depends on has changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

NODE=22.23.3 NPM=10.9.4
case $(uname -sm) in
    "Linux x86_64")
        PLATFORM=linux-x64
        NODE_SHA512="qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng==" ;;
    "Linux aarch64")
        PLATFORM=linux-arm64
        NODE_SHA512="l3DAHZreylo+p9QXDtsOrjG2JXJqVzYXnAGmIQNOUNARcMppTO2cmewVQP+36tjJnSE+dzpMNtgW+c3oiDvXtA==" ;;
    *) PLATFORM="" ;;
esac
NPM_SHA512="OnUG836FwboQIbqtefDNlyR0gTHzIfwRfE3DuiNewBvnMnWEpB0VEXwBlFVgqpNzIgYo/MHh3d2Hel/pszapAA=="
WANTED=tests/server/inspector
TOOLS=build/inspector
STAMP=$TOOLS/milkweed-setup
LOG=build/inspector.log

say() { printf 'setup-inspector: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }
# shellcheck source=scripts/apt.sh
source scripts/apt.sh

stamp() { sha256sum scripts/setup-inspector.sh "$WANTED/package.json" "$WANTED/package-lock.json" | sha256sum; }

is_done() { [[ -f $STAMP && $(<"$STAMP") == "$(stamp)" ]] && "$TOOLS/node/bin/node" --version >/dev/null 2>&1; }

# The configured registry, as npm finds it.
registry() {
    local url=${npm_config_registry:-${NPM_CONFIG_REGISTRY:-}}
    [[ -n $url ]] || url=$(sed -n 's/^registry *= *//p' ~/.npmrc 2>/dev/null | tail -n 1)
    url=${url:-https://registry.npmjs.org}
    printf '%s\n' "${url%/}"
}

# Unpacks package $1 at version $2, whose SHA-512 is $3, into folder $4.
unpack() {
    say "$1 $2"
    .venv/bin/python - "$(registry)/$1/-/$1-$2.tgz" "$3" "$4" >>"$LOG" 2>&1 <<'PYTHON' || fail "$1 $2 could not be fetched; see $LOG"
import base64, hashlib, io, pathlib, sys, tarfile, urllib.request

url, digest, target = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
data = urllib.request.urlopen(url, timeout=300).read()
if base64.b64encode(hashlib.sha512(data).digest()).decode() != digest:
    sys.exit(f"{url} is not what it was when its digest was taken")
with tarfile.open(fileobj=io.BytesIO(data)) as archive:
    for member in archive:
        member.name = member.name.partition("/")[2]  # the package is in a folder of its own
        if member.name:
            archive.extract(member, target)
PYTHON
}

install_chromium() {
    command -v chromium >/dev/null || apt_install chromium ||
        fail "no chromium, in which the Inspector's page is tested. Run as root: apt-get install chromium"
}

[[ -n $PLATFORM ]] || fail "the Inspector is set up on Linux only, on x86-64 or aarch64; this is $(uname -sm)"
mkdir -p build
exec 9>build/inspector.lock
flock 9
: >"$LOG"
install_chromium
is_done && exit

rm -rf "$TOOLS"
mkdir -p "$TOOLS"
unpack "node-$PLATFORM" "$NODE" "$NODE_SHA512" "$TOOLS/node"
unpack npm "$NPM" "$NPM_SHA512" "$TOOLS/npm"
cp "$WANTED/package.json" "$WANTED/package-lock.json" "$TOOLS/"
say "the MCP Inspector and the conformance suite"
PATH="$PWD/$TOOLS/node/bin:$PATH" npm_config_cache="$PWD/$TOOLS/cache" \
    node "$TOOLS/npm/bin/npm-cli.js" ci --prefix "$TOOLS" --ignore-scripts --no-audit --no-fund >>"$LOG" 2>&1 ||
    fail "npm ci failed; its words are in $LOG"
rm -rf "$TOOLS/cache"
stamp >"$STAMP"
say "done: $TOOLS"
