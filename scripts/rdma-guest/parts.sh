#!/usr/bin/env bash
# parts.sh FOLDER: makes the guest's kernel and initrd in FOLDER. The kernel is Debian's newest for this release,
# downloaded and unpacked, not installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/rdma-guest/common.sh
# shellcheck source=scripts/apt.sh
source scripts/apt.sh
folder=$1 work=$1/work
mkdir "$work"

# Downloads the package that linux-image-amd64 stands for.
download() {
    local image
    image=$(apt-cache depends linux-image-amd64 2>>"$LOG" | grep -om 1 'linux-image-[0-9][^ ]*') || return 1
    say "kernel: $image"
    (cd "$work" && apt-get download -qq "$image") >>"$LOG" 2>&1
}

if ! download; then
    may_install && as_root apt-get update -qq >>"$LOG" 2>&1
    download
fi
dpkg -x "$work"/linux-image-*.deb "$work/kernel" 2>>"$LOG"
mv "$work"/kernel/boot/vmlinuz-* "$folder/vmlinuz"
[[ -d $work/kernel/lib/modules ]] || ln -s usr/lib "$work/kernel/lib"
"$HERE/initrd.sh" "$work/kernel" "$work/initrd"
mv "$work/initrd.img" "$folder/initrd"
rm -r "$work"
