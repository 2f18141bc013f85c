"""One proc of a host: its sockets, environment and output, from before its start to behind its end."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import anyio

from ..agent.capping import OutputCap
from ..agent.children import Child, OnExit
from ..agent.context import HostContext
from ..agent.hook_protocol import find_stack_file, hook_environment
from ..agent.ptree import Tree
from ..agent.starter import Starters
from ..output import layout_file, output_file
from ..paths import proc_sockets
from ..proc_place import PROC_VARIABLE, ProcPlace, encode_place
from ..proc_records import ProcSpec, ProcStarted, SpawnProcs
from ..records import EndReason, Exit
from .last_words import LAST_BYTES, LastWords, last_words

__all__ = ["HostProc"]

_BACKLOG = 1024
_LOOPBACK = "127.0.0.1"


class HostProc:
    """`child` is None until it runs, `exit` until it has ended; `ended` is set when nothing of it is left.

    `wanted` is unset to keep it from running; nobody hears of the end of one that is `untold`. `over`: its
    process has ended, or there never will be one; `enders` is how many are at work to end what it started;
    `swept`: somebody has taken on what is left of it.
    """

    def __init__(
        self, context: HostContext, request: SpawnProcs, spec: ProcSpec, host_socket: Path, number: int
    ) -> None:
        self.name = spec.proc
        self.run = request.run
        self.child: Child | None = None
        self.exit: Exit | None = None
        self.ended_by: EndReason | None = None
        self.start = ""
        self.wanted = True
        self.untold = False
        self.silent_since = 0.0
        self.enders = 0
        self.over = False
        self.swept = False
        self.ended = anyio.Event()
        self.socket, self.control = proc_sockets(host_socket, number)
        self.directory = context.procs_directory
        self._context = context
        self._request = request
        self._spec = spec
        self._host_socket = host_socket
        self._mark = ""

    @property
    def is_alive(self) -> bool:
        return self.child is not None and self.exit is None

    @property
    def pid(self) -> int:
        """0 before it runs."""
        return 0 if self.child is None else self.child.pid

    @property
    def started(self) -> ProcStarted | None:
        if self.child is None:
            return None
        return ProcStarted(
            self.name,
            self.child.pid,
            self.child.start_time,
            str(self.socket),
            str(self.control),
            self.start,
        )

    async def launch(
        self, starters: Starters, arguments: tuple[str, ...], cap: OutputCap, on_exit: OnExit
    ) -> bool:
        """Starts the process with listening sockets; False where it was not wanted any more.

        Raises:
            OSError: it cannot be started. ValueError: its environment holds what no environment can.
        """
        request = self._request
        with ExitStack() as stack:
            data = stack.enter_context(closing(_listen(self.socket)))
            control = stack.enter_context(closing(_listen(self.control)))
            output = self._open_output(cap)
            stack.callback(os.close, output)
            fds = (data.fileno(), control.fileno())
            started = await starters.start(
                (request.python, *arguments),
                env=self._environment(*fds, os.environ),
                cwd=request.cwd,
                output=output,
                on_exit=on_exit,
                wanted=lambda: self.wanted,
                cold=None if request.warm else "",
                pass_fds=fds,
                imported=request.imported,
            )
        if started is None:
            return False
        self.child, self.start = started.child, started.how
        return True

    def _open_output(self, cap: OutputCap) -> int:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.remove_output()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        output = os.open(output_file(self.directory, self.name), flags, 0o600)
        cap.watch(self.directory, self.name, lambda _: None)
        return output

    def _environment(self, data: int, control: int, base: Mapping[str, str]) -> dict[str, str]:
        context, request = self._context, self._request
        place = ProcPlace(
            self.name,
            context.name,
            str(self._host_socket),
            context.mesh,
            request.sys_path,
            data,
            control,
            request.run,
        )
        self._mark = encode_place(place)
        env = {name: value for name, value in base.items() if not name.startswith("MILKWEED_")}
        env |= {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "TMPDIR": str(context.temporary)}
        if context.address == _LOOPBACK:
            env["GLOO_SOCKET_IFNAME"] = "lo"  # as ranks have it
        env |= self._spec.env
        env |= self._marks()
        env["MILKWEED_MESH"] = context.mesh
        env |= context.reached
        return env | hook_environment(self.directory, self.name, env.get("PYTHONPATH", ""))

    def _marks(self) -> dict[str, str]:
        return {"MILKWEED_HOST_ID": self._context.instance, PROC_VARIABLE: self._mark}

    def tree(self) -> Tree | None:
        """All that it has started; None before it runs."""
        if self.child is None:
            return None
        return Tree(self.child.pid, self.child.start_time if self.exit is None else -1, self._marks())

    def last_words(self) -> LastWords:
        """The end of its output."""
        try:
            with open(output_file(self.directory, self.name), "rb", buffering=0) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
                return last_words(file.read(LAST_BYTES))
        except OSError:
            return LastWords()

    def close_sockets(self) -> None:
        """Nobody can reach it from now on."""
        for path in (self.socket, self.control):
            with suppress(OSError):
                path.unlink()

    def tidy_up(self) -> None:
        """Removes what only a living proc needs; its output stays."""
        self.close_sockets()
        if self.child is not None and (file := find_stack_file(self.directory, self.child.pid)) is not None:
            with suppress(OSError):
                file.unlink()

    def remove_output(self) -> None:
        for path in (output_file(self.directory, self.name), layout_file(self.directory, self.name)):
            with suppress(OSError):
                path.unlink()
        for path in self.directory.glob(f"{self.name}.seg-*"):
            with suppress(OSError):
                path.unlink()


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # the mode that bind gives the path
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
