"""The lease of a host: the time after which the agent gives everything back, whoever else is alive.

It runs on CLOCK_BOOTTIME, which goes on while the machine sleeps and cannot be set. A boot id beside it makes
the number mean one boot only: after another boot the lease is over.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

__all__ = ["Lease", "LeaseHolder", "boot_id", "boottime_s", "decode_lease", "encode_lease", "left_s"]

# A timer stands still while the machine sleeps, so a long wait is made of short ones.
_SLICE_S = 15.0


@dataclass(frozen=True, slots=True)
class Lease:
    boot_id: str
    deadline_s: float


def left_s(lease: Lease, now_s: float, boot: str) -> float:
    """Seconds until the lease ends, 0 when it is over."""
    return max(0.0, lease.deadline_s - now_s) if lease.boot_id == boot else 0.0


def encode_lease(lease: Lease) -> str:
    return json.dumps({"boot_id": lease.boot_id, "deadline_boottime_s": lease.deadline_s})


def decode_lease(text: str) -> Lease:
    """Raises ValueError when the text is no lease."""
    try:
        value = json.loads(text)
        return Lease(str(value["boot_id"]), float(value["deadline_boottime_s"]))
    except (TypeError, KeyError) as error:
        raise ValueError(f"no lease: {text[:80]!r}") from error


def boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class LeaseHolder:
    """The lease of this host in memory, and in a file for those who look without the agent.

    A file that is there already counts, so that an agent that starts again gets no new time; `seconds`
    are granted where there is none. A file that cannot be written leaves the lease in memory as it is.
    """

    def __init__(
        self, path: Path, seconds: float, *, clock: Callable[[], float] = boottime_s, boot: str | None = None
    ) -> None:
        self._path = path
        self._clock = clock
        self._boot = boot_id() if boot is None else boot
        self._changed = anyio.Event()
        try:
            self._lease = decode_lease(path.read_text())
        except FileNotFoundError:
            self._lease = Lease(self._boot, clock() + seconds)
            self._save()
        except ValueError:
            self._lease = Lease("", 0.0)

    def left_s(self) -> float:
        return left_s(self._lease, self._clock(), self._boot)

    def extend(self, seconds: float) -> float:
        """Makes the lease end `seconds` from now, if that is later than it would; returns the seconds left.

        A lease that is over stays over.
        """
        left = self.left_s()
        if 0.0 < left < seconds:
            self._lease = Lease(self._boot, self._clock() + seconds)
            self._save()
            self._changed.set()
            self._changed = anyio.Event()
        return self.left_s()

    async def expired(self) -> None:
        """Returns when the lease is over."""
        while left := self.left_s():
            changed = self._changed
            with anyio.move_on_after(min(left, _SLICE_S)):
                await changed.wait()

    def _save(self) -> None:
        fresh = self._path.with_name(f".{self._path.name}.new")
        with suppress(OSError):
            fresh.write_text(encode_lease(self._lease))
            os.replace(fresh, self._path)
