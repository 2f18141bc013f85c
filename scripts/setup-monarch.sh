#!/usr/bin/env bash
# Makes .venv-monarch at the repository root: torchmonarch and the torch of scripts/setup.sh, to be measured beside
# Milkweed. Needs .venv. Where it cannot be made, build/monarch.failed says why, and the status is 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

MONARCH=0.7.0
TORCH=$(sed -n 's/^TORCH=//p' scripts/setup.sh)
NAME=monarch
WHAT="torchmonarch $MONARCH and torch $TORCH"
source scripts/peer-venv.sh

pip "torch==$TORCH+cpu" || pip "torch==$TORCH" || fail "torch $TORCH could not be installed"
pip "torchmonarch==$MONARCH" || fail "torchmonarch $MONARCH could not be installed"
finish monarch.actor
