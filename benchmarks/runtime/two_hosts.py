"""Network namespaces on a bridge: what crosses between them really crosses."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["ADDRESSES", "OUTSIDE", "HostsApart", "TwoHosts"]

ADDRESSES = ("10.78.9.2", "10.78.9.3")
OUTSIDE = "10.78.9.1"


class HostsApart:
    """They go with `close`, and what was started in them is ended. With `outside`, this process reaches them,
    from an address that only one such bridge can have at a time. Each link lets `mbit` through, each way.

    Raises:
        RuntimeError: they cannot be made here.
    """

    def __init__(self, addresses: Sequence[str], *, outside: bool = False, mbit: int | None = None) -> None:
        self.addresses = addresses
        self._mbit = mbit
        self._tag = f"mb{os.getpid() % 100000}"
        self._started: list[subprocess.Popen[bytes]] = []
        try:
            self._make(outside)
        except BaseException:
            self.close()
            raise

    def _make(self, outside: bool) -> None:
        bridge = self._tag
        _ip("link", "add", bridge, "type", "bridge")
        if outside:
            _ip("address", "add", f"{OUTSIDE}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number, address in enumerate(self.addresses):
            name, cable = self._name(number), f"{self._tag}v{number}"
            _ip("netns", "add", name)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", cable, "master", bridge, "up")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", name, "link", "set", device, "up")
            if self._mbit is not None:
                shape = ("root", "tbf", "rate", f"{self._mbit}mbit", "burst", "256kb", "latency", "50ms")
                _run("tc", "qdisc", "add", "dev", cable, *shape)
                _run("tc", "-n", name, "qdisc", "add", "dev", "eth0", *shape)

    def _name(self, host: int) -> str:
        return f"{self._tag}n{host}"

    def start(
        self, host: int, command: Sequence[str], env: Mapping[str, str] | None = None, **pipes: Any
    ) -> subprocess.Popen[bytes]:
        started = subprocess.Popen(
            ["ip", "netns", "exec", self._name(host), *command], env={**os.environ, **(env or {})}, **pipes
        )
        self._started.append(started)
        return started

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
        for number in range(len(self.addresses)):
            subprocess.run(["ip", "netns", "delete", self._name(number)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", self._tag], capture_output=True, check=False)


class TwoHosts(HostsApart):
    """Two of them, whose links are not shaped."""

    def __init__(self, *, outside: bool = False) -> None:
        super().__init__(ADDRESSES, outside=outside)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
