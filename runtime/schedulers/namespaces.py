"""Simulated hosts with a mount, network and UTS namespace each, on one bridge: `isolation=namespaces`.

Run as a program, this enters a host: it makes the namespaces, plugs an `eth0` into the mesh's bridge, gives the
host its name, its `/etc/hosts`, `/dev/shm` and `/var/tmp`, and then becomes the command it was given. No address
is put on the bridge itself: nothing but the hosts can be reached through it. The rest of the file system is shared.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import Unavailable

__all__ = ["address_of", "check_possible", "enter_command", "leave_commands", "remove_bridge"]

_PREFIX_LENGTH = 16


def address_of(host: int) -> str:
    """10.77.0.1 for host 0 and so on; every mesh has a bridge of its own, so meshes may share addresses."""
    number = host + 1
    return f"10.77.{number // 256}.{number % 256}"


def check_possible() -> None:
    """
    Raises:
        Unavailable: isolation_unavailable, with what is missing and the mend.
    """
    if shutil.which("ip") is None:
        raise Unavailable("isolation_unavailable", "the `ip` command is missing", "Run: apt-get install iproute2")
    tried = subprocess.run(["unshare", "--mount", "--net", "--uts", "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise Unavailable(
            "isolation_unavailable",
            f"this kernel or user may not make namespaces ({tried.stderr.strip() or 'unshare failed'})",
            "Run as root or with CAP_SYS_ADMIN and CAP_NET_ADMIN, or leave out the isolation option.",
        )


def _tag(mesh: str) -> str:
    # Interface names have at most 15 bytes.
    return hashlib.blake2s(mesh.encode(), digest_size=4).hexdigest()


def _bridge(mesh: str) -> str:
    return f"mw{_tag(mesh)}"


def _cable(mesh: str, host: int) -> str:
    return f"mw{_tag(mesh)}-{host:x}"


def enter_command(mesh: str, host: int, hosts: int, name: str, directory: Path) -> tuple[str, ...]:
    options = ("--mesh", mesh, "--host", str(host), "--hosts", str(hosts), "--name", name, "--directory", str(directory))
    return (sys.executable, "-m", __name__, *options, "--")


def leave_commands(mesh: str, host: int) -> tuple[tuple[str, ...], ...]:
    bridge = _bridge(mesh)
    last_out = f'[ -n "$(ls /sys/class/net/{bridge}/brif 2>/dev/null)" ] || ip link delete {bridge}'
    return (("ip", "link", "delete", _cable(mesh, host)), ("/bin/sh", "-c", last_out))


def remove_bridge(mesh: str, hosts: int) -> None:
    """Removes what a killed guard could not; safe to repeat."""
    for name in (*(_cable(mesh, host) for host in range(hosts)), _bridge(mesh)):
        if os.path.exists(f"/sys/class/net/{name}"):
            subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0 and "File exists" not in done.stderr:
        raise SystemExit(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _enter_network(mesh: str, host: int) -> None:
    from .. import _native

    outside = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    _native.unshare(_native.CLONE_NEWNET)
    inside = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    _native.setns(outside, _native.CLONE_NEWNET)
    bridge, cable = _bridge(mesh), _cable(mesh, host)
    _ip("link", "add", bridge, "type", "bridge")
    _ip("link", "set", bridge, "up")
    _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", f"/proc/{os.getpid()}/fd/{inside}")
    _ip("link", "set", cable, "master", bridge, "up")
    _native.setns(inside, _native.CLONE_NEWNET)
    _ip("address", "add", f"{address_of(host)}/{_PREFIX_LENGTH}", "dev", "eth0")
    _ip("link", "set", "eth0", "up")
    _ip("link", "set", "lo", "up")


def _enter_files(directory: Path, name: str, hosts: int) -> None:
    from .. import _native

    prefix = name.rpartition("-")[0]
    lines = ["127.0.0.1 localhost", *(f"{address_of(k)} {prefix}-{k}" for k in range(hosts))]
    etc_hosts, etc_hostname, var_tmp = directory / "etc-hosts", directory / "etc-hostname", directory / "var-tmp"
    etc_hosts.write_text("\n".join(lines) + "\n")
    etc_hostname.write_text(name + "\n")
    var_tmp.mkdir(mode=0o1777, exist_ok=True)
    _native.unshare(_native.CLONE_NEWNS | _native.CLONE_NEWUTS)
    _native.mount("none", "/", "", _native.MS_REC | _native.MS_PRIVATE, "")
    for source, target in ((etc_hosts, "/etc/hosts"), (etc_hostname, "/etc/hostname"), (var_tmp, "/var/tmp")):
        if os.path.exists(target):
            _native.mount(str(source), target, "", _native.MS_BIND, "")
    _native.mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777")
    socket.sethostname(name)


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="enter-host")
    for option in ("--mesh", "--name", "--directory"):
        parser.add_argument(option, required=True)
    for option in ("--host", "--hosts"):
        parser.add_argument(option, required=True, type=int)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    _enter_network(options.mesh, options.host)
    _enter_files(Path(options.directory), options.name, options.hosts)
    os.execv(options.command[0], options.command)


if __name__ == "__main__":
    main(sys.argv[1:])
