"""Asking a process of the actor runtime, over its control socket, what its stacks do not show."""

from __future__ import annotations

import json
from pathlib import Path

import anyio

from ..codec import from_json
from ..records import Inside

__all__ = ["ask_inside"]

_ANSWER_S = 0.5
_MOST_BYTES = 4 * 1024 * 1024
_REQUEST = b'{"op": "inside"}\n'


async def ask_inside(control: Path) -> Inside | None:
    """What it tells; None where it does not within half a second: it holds its GIL, is stopped, or gone."""
    data = bytearray()
    try:
        with anyio.fail_after(_ANSWER_S):
            async with await anyio.connect_unix(control) as stream:
                await stream.send(_REQUEST)
                while not data.endswith(b"\n") and len(data) < _MOST_BYTES:
                    data += await stream.receive()
        return from_json(Inside, json.loads(data)["inside"])
    except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
        return None
    except (ValueError, TypeError, KeyError):  # no answer of ours, or too long a one
        return None
