"""What a forked child is to be, for a child of the very process that reads it: marshalled, without a file.

A child that reads JSON, or opens a file as Python does, writes to a hundred pages that it would share.
"""

from __future__ import annotations

import marshal
import os
from typing import NamedTuple

from ..hook_protocol import HOOK_DIRECTORY
from ..starter.key import WarmRequest
from .image import Image, image_of

__all__ = ["Plan", "encode_plan", "read_plan"]


class Plan(NamedTuple):
    """`path` is what the variables put into `sys.path`."""

    image: Image
    argv: list[str]
    cwd: str
    path: list[str]
    fds: list[int]


def encode_plan(request: WarmRequest) -> bytes:
    entries = [entry for entry in request.env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return marshal.dumps(
        (
            tuple(image_of(request.argv, request.env)),
            list(request.argv),
            request.key.cwd,
            [os.path.abspath(entry) for entry in entries if entry != str(HOOK_DIRECTORY)],
            list(request.fds),
        )
    )


def read_plan(fd: int) -> Plan:
    """Reads it and closes the file."""
    size = os.lseek(fd, 0, os.SEEK_END)
    data = os.pread(fd, size, 0)
    os.close(fd)
    image, *rest = marshal.loads(data)
    return Plan(Image(*image), *rest)
