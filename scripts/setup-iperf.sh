#!/usr/bin/env bash
# Installs iperf3, to be measured beside Milkweed, where there is none and packages may be installed.
set -euo pipefail

command -v iperf3 >/dev/null && exit
root=()
[[ $EUID -eq 0 ]] || root=(sudo -n)
if command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    "${root[@]}" apt-get install -qq -y --no-install-recommends iperf3 >/dev/null 2>&1 && exit
    "${root[@]}" apt-get update -qq >/dev/null 2>&1 || true
    "${root[@]}" apt-get install -qq -y --no-install-recommends iperf3 >/dev/null 2>&1 && exit
fi
echo "setup-iperf: there is no iperf3, and it could not be installed: transfers are not measured beside it" >&2
exit 1
