"""`milkweed transcribe`: a transcript of a session log of Claude Code."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..transcripts.importing import Imported

__all__ = ["add_arguments", "run"]

_MOST_BYTES = 256 * 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", type=Path, help="~/.claude/projects/PROJECT/SESSION.jsonl")
    parser.add_argument("folder", type=Path, help="a new folder: session.jsonl and workspace/ go there")
    parser.add_argument(
        "--workspace", type=Path, metavar="DIR", help="the workspace as it was before the session"
    )
    parser.add_argument(
        "--was-at", default="", metavar="PATH", help="its path in the log, where it is not told"
    )
    parser.add_argument(
        "--shell",
        choices=("installs", "all", "none"),
        default="installs",
        help="commands of the client's machine that become steps, which a replay runs (default: installs)",
    )


def run(arguments: argparse.Namespace) -> int:
    from ...runtime.errors import MilkweedError

    try:
        imported = _import(arguments)
        _write(imported, arguments.folder)
    except MilkweedError as error:
        print(error, file=sys.stderr)
        return 2
    steps = len(imported.transcript.steps)
    print(
        f"{arguments.folder / 'session.jsonl'}: {steps} steps, {len(imported.files)} files of the workspace"
    )
    for what, count in imported.left_out.items():
        print(f"left out: {count} {what}")
    print("Read it before you share it: a secret without form or name is not found.")
    return 0


def _import(arguments: argparse.Namespace) -> Imported:
    from ...tools.registry import BUILT_IN, DEFAULT, Registry
    from ..redaction import Redactor, secrets_of
    from ..transcripts.claude_code import read_log
    from ..transcripts.importing import import_log
    from ..transcripts.workspace import TextFiles

    at_first: dict[str, str] = {}
    if arguments.workspace is not None:
        files = TextFiles(arguments.workspace.absolute())
        files.edits()
        at_first = files.texts()
    log = read_log(_read(arguments.log), arguments.log.name)
    return import_log(
        log,
        {tool.name: tool.toolset for tool in Registry.load(",".join(BUILT_IN)).tools},
        default_toolsets=DEFAULT,
        at_first=at_first,
        paths={"home": str(Path.home())},
        redact=Redactor(secrets_of(os.environ)),
        shell=arguments.shell,
        workspace=arguments.was_at,
    )


def _read(file: Path) -> str:
    from ...runtime.errors import InvalidArgument, NotFound

    try:
        if file.stat().st_size > _MOST_BYTES:
            raise InvalidArgument(
                "log_unreadable", f"{file} has more than {_MOST_BYTES >> 20} MiB", "Give one session."
            )
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise NotFound("log_unreadable", f"{file} cannot be read: {why}", "Give another file.") from None


def _write(imported: Imported, folder: Path) -> None:
    from ...runtime.errors import Conflict, Unavailable
    from ..transcripts.format import dump_line

    try:
        folder.mkdir(parents=True)
        for name, text in imported.files.items():
            path = folder / "workspace" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        (folder / "workspace").mkdir(exist_ok=True)
        with (folder / "session.jsonl").open("w", encoding="utf-8") as out:
            transcript = imported.transcript
            out.writelines(map(dump_line, (transcript.header, *transcript.steps)))
    except FileExistsError:
        raise Conflict("file_exists", f"{folder} is there", "Give a new folder.") from None
    except OSError as error:
        raise Unavailable(
            "recording_failed", f"{folder} cannot be written: {error.strerror}", "Give another place."
        ) from None
