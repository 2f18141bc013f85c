"""`process_vm` and `shared`: one-sided, within one host. The owner takes no part and may sleep."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from typing import Literal

from .. import _native_memory as native
from .handle import Handle, Machine
from .outcomes import DONE, error_of
from .providers import Job, Line, Unreachable
from .staging import on_host

__all__ = ["Peers", "SameHost"]

_PEERS_KEPT = 256
# What says that this way is closed here, and nothing about the region.
_CLOSED = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP)


class Peers:
    """The tables of other processes, by token."""

    def __init__(self, machine: Machine, own: bytes) -> None:
        self._machine = machine
        self._own = own
        self._lock = threading.Lock()
        self._peers: OrderedDict[bytes, native.Peer] = OrderedDict()

    def of(self, handle: Handle) -> native.Peer:
        """
        Raises:
            Unreachable: another host, or its table may not be opened.
            MilkweedError: buffer_owner_lost.
        """
        owner = handle.owner
        if not self._machine.shares_memory(owner.machine):
            raise Unreachable("its owner is on another host")
        if owner.token == self._own:
            raise Unreachable("it is this process")  # which must not open its own table
        with self._lock:
            peer = self._peers.get(owner.token)
            if peer is None or not peer.is_alive:
                self._peers.pop(owner.token, None)
                peer = self._peers[owner.token] = self._opened(handle)
            self._peers.move_to_end(owner.token)
            if len(self._peers) > _PEERS_KEPT:  # what is still in use lives on with its use
                self._peers.popitem(last=False)
            return peer

    def forget(self, handle: Handle) -> None:
        """Of an owner that is gone nothing is kept: neither its table nor what is mapped of its memory."""
        with self._lock:
            peer = self._peers.get(handle.owner.token)
            if peer is not None and not peer.is_alive:
                del self._peers[handle.owner.token]

    def _opened(self, handle: Handle) -> native.Peer:
        owner = handle.owner
        try:
            return native.Peer(owner.pid, owner.table_fd, owner.token)
        except OSError as error:
            if error.errno == errno.ESRCH:
                raise error_of(native.OWNER_LOST, handle, write=False) from None
            raise Unreachable(f"its owner's descriptors: {error.strerror}", forbidden=True) from None

    def close(self) -> None:
        for peer in tuple(self._peers.values()):
            peer.close()


class SameHost:
    """`process_vm` moves any memory; `shared` only what is a file, and is then as fast as a copy."""

    at_hand = True

    def __init__(self, name: Literal["process_vm", "shared"], peers: Peers) -> None:
        self.name = name
        self._peers = peers

    def reach(self, handle: Handle) -> Line:
        if handle.device:
            raise Unreachable(f"its memory is on {handle.device}")
        if self.name == "shared" and not handle.mappable:
            raise Unreachable("its memory was not allocated by RDMABuffer")
        return _OneSided(self.name, self._peers.of(handle), self._peers)

    def close(self) -> None:
        self._peers.close()


class _OneSided:
    quick = 256 * 1024

    def __init__(self, name: str, peer: native.Peer, peers: Peers) -> None:
        self._name = name
        self._peers = peers
        self._native = peer.move if name == "process_vm" else peer.copy

    def move(self, job: Job) -> None:
        with on_host(job) as jobs:
            for one in jobs:
                self._move_one(one)

    def _move_one(self, job: Job) -> None:
        handle = job.handle
        status, number = self._native(
            handle.slot,
            handle.generation,
            handle.key,
            job.write,
            job.offset,
            job.length,
            job.local.address,
            job.threads,
            job.stop,
            job.deadline,
        )
        if status == DONE:
            return
        if status == native.FAILED and number in _CLOSED:
            raise Unreachable(f"{self._name} here: {os.strerror(number)}{_hint(number)}", forbidden=True)
        if status == native.OWNER_LOST:
            self._peers.forget(handle)
        raise error_of(status, handle, write=job.write, number=number)


def _hint(number: int) -> str:
    if number not in (errno.EPERM, errno.EACCES):
        return ""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:
        return ""
    return f" (kernel.yama.ptrace_scope is {scope})" if scope != "0" else ""
