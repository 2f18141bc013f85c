# shellcheck shell=bash
# What the scripts of the guest share. To be sourced, from the repository root.
#
# The guest is a virtual machine with soft-RoCE: real verbs on a machine without RDMA. Its kernel is Debian's, its
# root is this machine's. What is built for it (kernel, initrd) lies in PARTS, whose name tells of what it was built:
# it is there whole or not at all.
HERE=scripts/rdma-guest
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/milkweed/rdma-guest
LOG=build/rdma-guest.log
QEMU=qemu-system-x86_64

say() { printf 'rdma-guest: %s\n' "$*" >&2; }
fail() { say "$@"; exit 125; }

[[ $(uname -sm) == 'Linux x86_64' ]] || fail "the guest is made for Linux on x86-64, this is $(uname -sm)"

parts() {
    {
        cat /etc/debian_version
        sha256sum "$HERE"/{parts.sh,initrd.sh,first}
    } 2>/dev/null | sha256sum | cut -c 1-16
}
PARTS=$CACHE/$(parts)
