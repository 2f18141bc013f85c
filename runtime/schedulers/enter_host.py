"""Enters a simulated host: makes its namespaces, then becomes the command it was given.

`namespaces.enter_command` makes its command line.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import _native
from .namespaces import PREFIX_LENGTH, address_of, bridge_name, cable_name


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0 and "File exists" not in done.stderr:
        raise SystemExit(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _enter_network(mesh: str, host: int) -> None:
    outside = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    _native.unshare(_native.CLONE_NEWNET)
    inside = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    _native.setns(outside, _native.CLONE_NEWNET)
    bridge, cable = bridge_name(mesh), cable_name(mesh, host)
    _ip("link", "add", bridge, "type", "bridge")
    _ip("link", "set", bridge, "up")
    _ip(
        "link",
        "add",
        cable,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        f"/proc/{os.getpid()}/fd/{inside}",
    )
    _ip("link", "set", cable, "master", bridge, "up")
    _native.setns(inside, _native.CLONE_NEWNET)
    _ip("address", "add", f"{address_of(host)}/{PREFIX_LENGTH}", "dev", "eth0")
    _ip("link", "set", "eth0", "up")
    _ip("link", "set", "lo", "up")


def _enter_files(directory: Path, name: str, hosts: int) -> None:
    prefix = name.rpartition("-")[0]
    addresses = [address_of(k) for k in range(hosts)]
    lines = ["127.0.0.1 localhost", *(f"{address} {prefix}-{k}" for k, address in enumerate(addresses))]
    # A socket of both families has its peer so, and torch looks for that one's name at each start.
    lines += [f"::ffff:{address} {prefix}-{k}.mapped" for k, address in enumerate(addresses)]
    etc_hosts, etc_hostname, var_tmp = (
        directory / "etc-hosts",
        directory / "etc-hostname",
        directory / "var-tmp",
    )
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
