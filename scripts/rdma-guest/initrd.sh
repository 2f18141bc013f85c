#!/usr/bin/env bash
# initrd.sh KERNEL FOLDER: packs FOLDER.img, the guest's first root: busybox, the modules that the guest needs out of
# the unpacked package KERNEL, and the program `first`.
set -euo pipefail
kernel=$1 root=$2 here=$(dirname "${BASH_SOURCE[0]}")
PATH=$PATH:/usr/sbin:/sbin

# To have the host's root and to talk with it; then RDMA over Ethernet, and networks.
MODULES=(virtio_pci 9pnet_virtio 9p overlay virtio_console virtio_rng qemu_fw_cfg
    rdma_rxe rdma_ucm veth sch_netem virtio_net)
OPTIONAL=(crc32_generic) # rdma_rxe asks for it by another name; built in, or gone, in newer kernels

mkdir -p "$root"/{bin,modules,proc,sys,dev,lower,layer,new}
version=$(basename "$kernel"/lib/modules/*)
depmod -b "$kernel" "$version"

# Prints the files of modules and of all that they need, in the order in which they are loaded.
files_of() { modprobe -d "$kernel" -S "$version" --show-depends "$@" | awk '$1 == "insmod" { print $2 }'; }

files=$(for module in "${MODULES[@]}"; do files_of "$module"; done)
files=$(files_of "${OPTIONAL[@]}" 2>/dev/null || true)$'\n'$files
awk 'NF && !seen[$0]++' <<<"$files" | while read -r file; do
    name=$(basename "$file")
    name=${name%.ko*}.ko
    case $file in
        *.ko) cp "$file" "$root/modules/$name" ;;
        *.xz) busybox xzcat "$file" >"$root/modules/$name" ;;
        *.zst) zstd -dcq "$file" >"$root/modules/$name" ;;
    esac
    echo "$name" >>"$root/modules/order"
done

cp "$(command -v busybox)" "$root/bin/busybox"
for applet in sh mount mkdir insmod cat grep sleep switch_root; do
    ln -s busybox "$root/bin/$applet"
done
install -m 755 "$here/first" "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$root.img"
