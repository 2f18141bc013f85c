"""One side of one line, in an interpreter of its own: `python -m benchmarks.runtime.child LINE FD OPTIONS`.

Answers JSON lines on the socket `FD`, one an order (`open`, `sample`, `close`); ends after the last.
Only the standard library and the side's own are imported here.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import socket
import sys
import traceback
from collections.abc import Coroutine
from typing import Any

from .plan import module_of


async def main(line: str, fd: int, options: dict[str, Any]) -> None:
    sock = socket.socket(fileno=fd)
    os.set_inheritable(fd, False)
    sock.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=sock)
    program: Any = None
    while order := (await reader.readline()).decode().strip():
        try:
            if order == "open":
                module = importlib.import_module(module_of(line))
                program = module.Measured(**options)
            result = await _unless_left(getattr(program, order)(), reader)
            answer: dict[str, Any] = {"ok": result}
        except asyncio.CancelledError:
            break
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        if order == "close":
            return
    if program is not None:  # whoever asked is gone, as after Ctrl-C
        await program.close()


async def _unless_left(work: Coroutine[Any, Any, Any], reader: asyncio.StreamReader) -> Any:
    """What `work` gives; it is cancelled where nobody is left to hear of it."""
    task = asyncio.ensure_future(work)
    left = asyncio.ensure_future(reader.read(1))  # nothing is said before an answer
    await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    left.cancel()
    await asyncio.wait({left})
    return task.result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])))
