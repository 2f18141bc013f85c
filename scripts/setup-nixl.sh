#!/usr/bin/env bash
# Makes .venv-nixl at the repository root: NIXL without what it depends on, and numpy, to be measured beside Milkweed.
# Needs .venv. Where it cannot be made, build/nixl.failed says why, and the status is 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

NIXL=1.5.1
NAME=nixl
WHAT="nixl-cu12 $NIXL"
source scripts/peer-venv.sh

pip numpy || fail "numpy could not be installed"
pip --no-deps "nixl-cu12==$NIXL" || fail "nixl-cu12 $NIXL could not be installed"
finish nixl_cu12._api
