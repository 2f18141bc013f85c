#!/usr/bin/env bash
# Runs tests/rdma in the guest, with pytest's arguments. PYTHON is the interpreter (.venv/bin/python).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-.venv/bin/python}

scripts/rdma-guest/setup.sh
cc -std=gnu11 -O1 -Wall -Wextra -Werror -o build/verbs_control tests/rdma/verbs_control.c -libverbs
c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only tests/rdma/ucx_abi.cpp
"$python" -m compileall -q server tools runtime tests # it takes ten times as long in the guest, and is forgotten there
export MILKWEED_TEST_SLOWER=5
exec scripts/rdma-guest/run -t 1200 "$python" -m pytest tests/rdma -p no:xdist -p no:cacheprovider --timeout 300 "$@"
