"""What became of a transfer, as errors. The numbers also cross sockets."""

from __future__ import annotations

import errno
import os

from .. import _native_memory as native
from ..errors import Conflict, InvalidArgument, MilkweedError, Unavailable
from .handle import Handle

__all__ = ["DONE", "error_of"]

DONE = native.DONE


def error_of(status: int, handle: Handle, *, write: bool, number: int = 0) -> MilkweedError:
    """The error of a status that is not DONE; `number` is the errno of FAILED."""
    what = f"the {'write to' if write else 'read of'} a buffer of {handle.owner}"
    if status == native.DROPPED:
        return Conflict(
            "buffer_dropped",
            f"the buffer was dropped by {handle.owner}",
            "Ask it for another, or let it drop later.",
        )
    if status == native.OWNER_LOST:
        return Unavailable(
            "buffer_owner_lost", f"{handle.owner}, which owns the buffer, has ended", "Look at why it did."
        )
    if status == native.WRONG_KEY:
        return InvalidArgument(
            "wrong_key", f"{what} does not show its key", "Take the buffer as its owner sent it."
        )
    if status == native.FORBIDDEN:
        return Conflict(
            "access_refused", f"{what} is not among its rights", "Its owner says which, when it makes it."
        )
    if status == native.OUT_OF_RANGE:
        return InvalidArgument("out_of_range", f"{what} leaves it", "Stay within the buffer.")
    if status == native.STOPPED:
        return Unavailable("cancelled", f"{what} was cancelled", "Part of it may have been moved.")
    if status == native.LATE:
        return Unavailable(
            "deadline_exceeded",
            f"{what} took longer than its timeout",
            "Give it a longer one; part of it may have been moved.",
        )
    reason = os.strerror(number) if number else "for no known reason"
    unmapped = "Memory must stay mapped until its buffer is dropped."
    next_step = unmapped if number == errno.EFAULT else "See dmesg."
    return Unavailable("transfer_failed", f"{what} failed: {reason}", next_step)
