#!/usr/bin/env bash
# Makes what the guest needs: packages, and its kernel and initrd, which are kept for the next time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/rdma-guest/common.sh
# shellcheck source=scripts/apt.sh
source scripts/apt.sh

# The first line is for this machine, the second is used in the guest, whose root this machine's is.
PACKAGES=(
    qemu-system-x86 busybox-static kmod
    gcc libc6-dev libibverbs-dev ibverbs-providers librdmacm1 libucx0 libucx-dev g++ iproute2
)

install_missing() {
    local package missing=()
    command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
        fail "the guest is made of Debian packages, and this machine has no apt: ${PACKAGES[*]}, linux-image-amd64"
    for package in "${PACKAGES[@]}"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
    done
    [[ ${#missing[@]} -eq 0 ]] || apt_install "${missing[@]}" ||
        fail "missing: ${missing[*]}. Run as root: apt-get install ${missing[*]}"
}

make_parts() {
    local new
    [[ -d $PARTS ]] && return
    mkdir -p "$CACHE"
    exec 9>"$CACHE/lock"
    flock 9
    [[ -d $PARTS ]] && return
    rm -rf "$CACHE"/new.* # of one that was killed: whoever lives holds the lock
    new=$(mktemp -d "$CACHE/new.XXXXXX")
    # shellcheck disable=SC2064  # the value of now
    trap "rm -rf '$new'" EXIT
    if ! "$HERE/parts.sh" "$new"; then
        tail -n 3 "$LOG" >&2
        fail "the guest's kernel and initrd could not be made; more is in $LOG"
    fi
    sync "$new"/* "$new"
    mv -T "$new" "$PARTS"
}

mkdir -p build
: >"$LOG"
install_missing
make_parts
