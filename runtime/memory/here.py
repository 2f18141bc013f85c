"""This process as an owner or a user of regions: its host, and where other hosts reach it."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping

from ..mesh_secret import ADDRESS_VARIABLE
from ..proc_place import PROC_VARIABLE, decode_place
from .handle import Machine, process_in_words

__all__ = ["BUFFER_ADDRESS_VARIABLE", "listen_address", "machine", "name", "this_process"]

BUFFER_ADDRESS_VARIABLE = "MILKWEED_BUFFER_ADDRESS"
"""An address of this host at which others are offered buffers, in place of the host's own; any, if set."""


def machine(env: Mapping[str, str] = os.environ) -> Machine:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    pids, network = (os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("pid", "net"))
    return Machine(boot, pids, network, _host_address(env) is not None)


def name(env: Mapping[str, str] = os.environ) -> str:
    """What its mesh calls this process, or the one that started it; empty outside of a mesh."""
    if (text := env.get(PROC_VARIABLE)) is not None:
        return f"proc {decode_place(text).proc}"
    run, rank = env.get("MILKWEED_RUN", ""), env.get("MILKWEED_RANK", "")
    return f"rank {rank} of {run}" if run and rank else run


def this_process() -> str:
    """As its handles say it to others."""
    return process_in_words(os.getpid(), name())


def listen_address(env: Mapping[str, str] = os.environ) -> str | None:
    """None where no other host can reach this one: nothing listens then."""
    if (wanted := env.get(BUFFER_ADDRESS_VARIABLE)) is not None:
        return wanted or None
    return _host_address(env)


def _host_address(env: Mapping[str, str]) -> str | None:
    """That of this process's host, where it is one that others can come to."""
    address = env.get(ADDRESS_VARIABLE, "")
    try:
        return None if not address or ipaddress.ip_address(address).is_loopback else address
    except ValueError:
        return address  # a name
