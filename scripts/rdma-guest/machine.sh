# shellcheck shell=bash
# The virtual machine: its hardware, and what runs it. To be sourced after common.sh.

# Prints QEMU's command, a word a line: accelerator $1, and $2 for the kernel. What it is for is to be added.
machine() {
    local cpu=max
    [[ $1 == kvm ]] && cpu=host,-arch-capabilities # which nested KVM refuses to set
    printf '%s\n' "$QEMU" -nodefaults -no-user-config -display none -no-reboot \
        -machine q35 -accel "$1" -cpu "$cpu" -smp 2 -m "${MILKWEED_GUEST_MEMORY:-2G}" \
        -kernel "$PARTS/vmlinuz" -initrd "$PARTS/initrd" \
        -append "console=ttyS0 panic=-1 quiet mitigations=off nokaslr random.trust_cpu=on $2"
}

# A /dev/kvm that can be opened is not yet a machine that runs: nested ones start, and hang. So one is booted.
boots_by_kvm() {
    local words command
    [[ -r /dev/kvm && -w /dev/kvm ]] || return 1
    mapfile -t command < <(machine kvm milkweed.probe)
    words=$(timeout -k 1 15 "${command[@]}" -serial stdio </dev/null 2>/dev/null | tr -d '\r') || true
    [[ $words == *'rdma-guest: alive'* ]]
}

# Prints kvm or tcg, and says it. What was found holds until this machine is booted again.
choose_accelerator() {
    local file=$CACHE/accelerator boot known='' accel=${MILKWEED_GUEST_ACCEL:-}
    if [[ -n $accel ]]; then
        say "by $accel, as it is told"
        echo "$accel"
        return
    fi
    boot=$(</proc/sys/kernel/random/boot_id)
    read -r known accel 2>/dev/null <"$file" || true
    if [[ $known != "$boot" || -z $accel ]]; then
        accel=tcg
        boots_by_kvm && accel=kvm
        echo "$boot $accel" >"$file.$$" && mv "$file.$$" "$file"
    fi
    [[ $accel == kvm ]] && say "by KVM" || say "by emulation (TCG), which is slow: KVM does not run here"
    echo "$accel"
}
