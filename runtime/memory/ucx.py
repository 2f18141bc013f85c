"""UCX in this process: opened when it is first needed, with the settings that its users count on."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from .. import _native_memory as native
from .here import listen_address
from .providers import Unreachable
from .rdma_ports import Port, address_of_interface, ports

__all__ = [
    "LIBRARY_VARIABLE",
    "RDMA_VARIABLE",
    "Listener",
    "Ucx",
    "forbidden",
    "library",
    "may_pin",
    "settings",
    "used",
]

RDMA_VARIABLE = "MILKWEED_RDMA"
"""`off`; `cm` or `address`: connect by rdma_cm, or by worker addresses; else by what leads there."""
LIBRARY_VARIABLE = "MILKWEED_UCX"
"""UCX's libucp, where the loader does not find it by itself."""

_LIBRARY = "libucp.so.0"
_TRANSPORTS = ("all", "rc", "dc", "ib")  # of RDMA, or with it among them: as rc_mlx5, rc_x
_OWN_BYTES = 32 * 1024 * 1024
_CAP_IPC_LOCK = 14

Listener = tuple[str, int]


def settings(env: Mapping[str, str]) -> dict[str, str]:
    """What is set for UCX, less what the user has set. Their reasons are measured ones (docs/memory.md)."""
    wanted = {
        # Only what the network card does alone; datagrams where connections are made by them.
        "TLS": "rc",
        "SOCKADDR_TLS_PRIORITY": "rdmacm",
        # UCX before 1.19 drops the datagrams of soft-RoCE without it.
        "UD_VERBS_ETH_DGID_CHECK": "n",
        # A dead peer is an error in about a second: by default it is one after 49, or never.
        "RC_VERBS_TIMEOUT": "250ms",
        "RC_VERBS_RETRY_COUNT": "3",
        "RC_MLX5_TIMEOUT": "250ms",
        "RC_MLX5_RETRY_COUNT": "3",
        # What is let go is let go: a cache of registrations would leave it open to the network, and would
        # have to change malloc to see what is freed.
        "IB_REG_METHODS": "direct",
        "RCACHE_ENABLE": "n",
        "MEM_EVENTS": "n",
        "MEMTYPE_CACHE": "n",
        # Signals are Python's.
        "HANDLE_ERRORS": "none",
        "LOG_LEVEL": "fatal",  # it would say it on the program's own output; statuses tell it too
        "WARN_UNUSED_ENV_VARS": "n",
    }
    return {f"UCX_{name}": value for name, value in wanted.items() if f"UCX_{name}" not in env}


def library(env: Mapping[str, str]) -> str:
    """What the loader is asked for."""
    return env.get(LIBRARY_VARIABLE) or _LIBRARY


def forbidden(env: Mapping[str, str]) -> str | None:
    """Why the user has it that there is no RDMA; None where nothing forbids it."""
    wanted = env.get(RDMA_VARIABLE, "")
    if wanted not in ("", "cm", "address"):
        known = "" if wanted == "off" else ", which is none of off, cm and address"
        return f"{RDMA_VARIABLE} is {wanted}{known}"
    names = env.get("UCX_TLS", "all").split(",")
    # Over all else UCX would have the owner's process do it, and nobody would be told.
    if not names[0].startswith("^") and not any(name.startswith(_TRANSPORTS) for name in names):
        return f"UCX_TLS is {','.join(names)}: no RDMA among it"
    return None


def may_pin(size: int) -> bool:
    """Whether this process may pin so much, and what UCX needs for itself."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return soft == resource.RLIM_INFINITY or soft >= _OWN_BYTES + size or _has_ipc_lock()


def _has_ipc_lock() -> bool:
    with open("/proc/self/status", encoding="ascii") as file:
        effective = next(line.split()[1] for line in file if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> _CAP_IPC_LOCK & 1)


class Ucx:
    """Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: native.Ucx | None = None
        self._reason: str | None = None
        self._listener: Listener | None = None

    def engine(self) -> native.Ucx:
        """
        Raises:
            Unreachable: there is no RDMA here, with the reason.
        """
        with self._lock:
            if self._engine is None and self._reason is None:
                self._reason = self._opened()
            if self._engine is None:
                raise Unreachable(self._reason or "UCX is closed")
            return self._engine

    def _opened(self) -> str | None:
        if (why := forbidden(os.environ)) is not None:
            return why
        found = ports()
        if not found:
            return "this host has no RDMA device"
        if not any(port.is_active for port in found):
            return "no port is active: " + ", ".join(f"{port} is {port.state}" for port in found)
        if not may_pin(0):
            return (
                f"this process may pin too little memory (ulimit -l): UCX takes {_OWN_BYTES >> 20} MiB itself"
            )
        try:
            with _environment(settings(os.environ)):
                self._engine = native.Ucx(library(os.environ))
        except RuntimeError as error:
            return str(error)
        return None

    def listener(self) -> Listener | None:
        """Where others connect by rdma_cm; None where that is not to be had."""
        engine = self.engine()
        with self._lock:
            if self._listener is None and os.environ.get(RDMA_VARIABLE) != "address":
                with suppress(RuntimeError):
                    self._listener = _listening(engine)
            return self._listener

    def close(self) -> None:
        with self._lock:
            engine, self._engine, self._reason = self._engine, None, "UCX is closed in this process"
        if engine is not None:
            engine.close()

    def abandon(self) -> None:
        """In a forked child, which cannot open it anew."""
        self._lock = threading.Lock()
        self._listener = None
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.abandon()


def _listening(engine: native.Ucx) -> Listener | None:
    """On an address of an RDMA device, which others can resolve to it: the host's own, where it is one."""
    usable = [port.interface for port in used(ports(), os.environ) if port.is_active and port.interface]
    addresses = [address for name in usable if (address := address_of_interface(name)) is not None]
    if not addresses:
        return None
    address = min(addresses, key=lambda address: address != listen_address())
    return address, engine.listen(address)


def used(found: Sequence[Port], env: Mapping[str, str]) -> list[Port]:
    """Those that the user lets UCX have."""
    names = env.get("UCX_NET_DEVICES", "all").split(",")
    return [port for port in found if "all" in names or str(port) in names]


@contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    """Most settings can be given in no other way. They are gone before a child could take them along."""
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
