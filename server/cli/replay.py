"""`milkweed replay`: play a recorded session against a live server, and tell what is not as it was."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..transcripts.answers import Answer
    from ..transcripts.format import Step, Transcript
    from ..transcripts.replay import CallTool, Played
    from ..transcripts.view import View

__all__ = ["add_arguments", "run"]

_LONGEST_PATH = 60
_READ_CHARACTERS_S = 40.0
_LONGEST_PAUSE_S = 6.0
_CLEAN_UP_S = 30.0
_START_S = 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a transcript (JSON Lines)")
    parser.add_argument("--form", default="", help="a form of the transcript, such as a shorter one")
    parser.add_argument("--scheduler", default="", help="another scheduler than the recorded one")
    parser.add_argument(
        "--speed", type=float, default=0.0, metavar="X", help="pause to read, X times as fast as a reader"
    )
    parser.add_argument("--step", action="store_true", help="wait for Enter before each step")
    parser.add_argument("--json", action="store_true", help="one line of JSON a step")
    parser.add_argument("--plain", action="store_true", help="plain lines, on a terminal too")
    parser.add_argument("--http", action="store_true", help="ask the server over HTTP, not over its stdio")
    parser.add_argument(
        "--protocol", choices=("2025-11-25", "2026-07-28"), default="2026-07-28", help="the MCP era to speak"
    )
    parser.add_argument("--keep", action="store_true", help="keep its directory: workspace, logs and output")


def run(arguments: argparse.Namespace) -> int:
    import anyio

    from ...runtime.errors import MilkweedError
    from ..transcripts.format import parse

    try:
        transcript = parse(_read(arguments.file), arguments.file.name).in_form(arguments.form)
        return anyio.run(_replay, arguments, transcript)
    except MilkweedError as error:
        print(error, file=sys.stderr)
        return 2


def _read(file: Path) -> str:
    from ...runtime.errors import NotFound

    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise NotFound(
            "transcript_unreadable", f"{file} cannot be read: {why}", "Give another file."
        ) from None


async def _replay(arguments: argparse.Namespace, transcript: Transcript) -> int:
    import anyio

    from ..demo import leftovers
    from ..transcripts.replay import Replay, copy_workspace

    root = Path(tempfile.mkdtemp(prefix="milkweed-replay-", dir=_folder()))
    keep = arguments.keep
    try:
        copy_workspace(arguments.file, transcript, root / "workspace")
        view = _view(arguments, len(transcript.steps))
        played: list[Played] = []
        async with _server(root, transcript.header.toolsets, arguments) as call:
            before = _pausing(arguments, view)
            replay = Replay(
                transcript,
                root / "workspace",
                call,
                names={"state": str(root / "state"), "home": str(Path.home())},
                scheduler=arguments.scheduler,
                not_isolated=_why_not_isolated(),
                before=before,
            )
            try:
                async for one in replay.play():
                    played.append(one)
                    view.end(one)
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(_CLEAN_UP_S):
                    await replay.clean_up()
        view.finish(played, len(transcript.steps))
        alike = len(played) == len(transcript.steps) and all(one.is_as_recorded for one in played)
        return 0 if alike else 1
    finally:
        with anyio.CancelScope(shield=True):
            await leftovers.end(root, _CLEAN_UP_S)
        if keep:
            print(f"Kept: {root}", file=sys.stderr)
        else:
            shutil.rmtree(root, ignore_errors=True)


def _why_not_isolated() -> str:
    from ...runtime.errors import MilkweedError
    from ...runtime.schedulers.namespaces import check_possible

    try:
        check_possible()
    except MilkweedError as error:
        return str(error)
    return ""


def _view(arguments: argparse.Namespace, total: int) -> View:
    from ..screen import open_screen
    from ..transcripts.view import JsonView, ScreenView

    if arguments.json:
        return JsonView(_say)
    return ScreenView(open_screen(plain=arguments.plain), total)


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _pausing(arguments: argparse.Namespace, view: View) -> Any:
    import anyio
    import anyio.to_thread

    async def before(number: int, step: Step) -> None:
        if arguments.step:
            await anyio.to_thread.run_sync(input, f"[{number}] Enter ", abandon_on_cancel=True)
        elif arguments.speed > 0:
            read_s = len(step.model_dump_json(exclude_defaults=True)) / _READ_CHARACTERS_S
            await anyio.sleep(min(_LONGEST_PAUSE_S, read_s) / arguments.speed)
        view.begin(number, step)

    return before


@asynccontextmanager
async def _server(root: Path, toolsets: str, arguments: argparse.Namespace) -> AsyncIterator[CallTool]:
    """`milkweed serve` of this installation, with state and sockets below `root`."""
    from mcp import Client, MCPError, StdioServerParameters

    from ...runtime.errors import Unavailable
    from ..transcripts.answers import Answer

    ours = {name: value for name, value in os.environ.items() if not name.startswith("MILKWEED_")}
    env = {**ours, "MILKWEED_STATE_DIR": str(root / "state"), "MILKWEED_RUNTIME_DIR": str(root / "run")}
    args = ["-m", "milkweed.server.cli", "serve", "--toolsets", toolsets]
    async with AsyncExitStack() as stack:
        where: Any
        if arguments.http:
            where = await stack.enter_async_context(
                _over_http([sys.executable, *args], env, root / "workspace")
            )
        else:
            where = StdioServerParameters(command=sys.executable, args=args, env=env, cwd=root / "workspace")
        mode = "legacy" if arguments.protocol == "2025-11-25" else "auto"
        client = await stack.enter_async_context(Client(where, mode=mode))

        async def call(name: str, asked: dict[str, Any]) -> Answer:
            try:
                result = await client.call_tool(name, asked)
            except MCPError as error:
                raise Unavailable("server_lost", f"{name} got no answer: {error}", "See its log.") from error
            text = "\n".join(getattr(part, "text", "") for part in result.content)
            return Answer(text, result.structured_content, bool(result.is_error))

        yield call


@asynccontextmanager
async def _over_http(command: list[str], env: dict[str, str], directory: Path) -> AsyncIterator[str]:
    """The URL of a server that ends with the block."""
    import subprocess

    import anyio

    from ...runtime.errors import Unavailable

    async with await anyio.open_process(
        [*command, "--http", "0"], env=env, cwd=directory, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert process.stderr is not None
        told = b""
        try:
            with anyio.fail_after(_START_S):
                while b"\n" not in told:
                    told += await process.stderr.receive()
        except (TimeoutError, anyio.EndOfStream):
            words = told.decode("utf-8", "replace").strip()
            raise Unavailable("server_lost", f"the server did not start: {words}", "See its log.") from None
        try:
            yield next(word.rstrip(";") for word in told.decode().split() if word.startswith("http://"))
        finally:
            process.terminate()


def _folder() -> str:
    """Where the directory goes: sockets in it need a short path."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _LONGEST_PATH else "/tmp"
