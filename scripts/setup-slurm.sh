#!/usr/bin/env bash
# Installs Slurm and munge from Debian's packages, for tests/clusters, where they are missing. Nothing is started.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
LOG=build/setup-slurm.log
PACKAGES=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge)

say() { printf 'setup-slurm: %s\n' "$*" >&2; }
# shellcheck source=scripts/apt.sh
source scripts/apt.sh

export PATH=$PATH:/usr/sbin:/sbin
is_done() { command -v slurmctld && command -v slurmd && command -v sbatch && command -v munged; }

is_done >/dev/null && exit
mkdir -p build
# Debian's packages would start daemons of their own, which need a configuration that nobody wrote.
policy=/usr/sbin/policy-rc.d
if [[ $EUID -eq 0 && ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt_install "${PACKAGES[@]}" || true
is_done >/dev/null || { say "Slurm is missing. Run as root: apt-get install ${PACKAGES[*]}"; exit 1; }
