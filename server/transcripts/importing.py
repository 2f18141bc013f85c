"""A transcript of somebody else's log: calls of Milkweed's tools, edits, installations, words. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal

from ...runtime.errors import InvalidArgument
from .claude_code import Log, Said, ToolUse, mcp_tool
from .diffs import make_diff
from .format import EditStep, Header, SayStep, ShellStep, Step, ToolStep, Transcript
from .naming import Names, mapped

__all__ = ["Imported", "ShellSteps", "import_log"]

ShellSteps = Literal["installs", "all", "none"]

_INSTALLS = re.compile(
    r"(?:^|[\s;&|/])(?:(?:pip3?|conda|mamba)\s+(?:un)?install|uv\s+(?:pip|add|remove|sync))\b"
)
_OUTPUT = 4000


@dataclass(frozen=True)
class Imported:
    """`files` are those of the workspace that the log tells, as they were at first. `left_out` says what of
    the log has no step, with how often."""

    transcript: Transcript
    files: Mapping[str, str]
    left_out: Mapping[str, int] = field(default_factory=dict)


def import_log(
    log: Log,
    tools: Mapping[str, str],
    *,
    default_toolsets: Collection[str],
    at_first: Mapping[str, str],
    paths: Mapping[str, str],
    redact: Callable[[str], str],
    shell: ShellSteps = "installs",
    workspace: str = "",
) -> Imported:
    """
    Args:
        tools: the toolset of each tool of Milkweed's, by name.
        at_first: text of the workspace's files before the session, where it is known.
        paths: of this machine, by the names that stand for them in transcripts.
        shell: which of the commands that were run on the client's machine become steps.
        workspace: its path in the log; default: that of the first mesh, else where the program was started.

    Raises:
        InvalidArgument: log_unreadable, it has no call of a tool of Milkweed's.
    """
    calls = [one for one in log.entries if isinstance(one, ToolUse) and mcp_tool(one.name) in tools]
    if not calls:
        raise InvalidArgument(
            "log_unreadable",
            "the log has no answered call of a tool of Milkweed's",
            "Their names in it are mcp__SERVER__TOOL, such as mcp__milkweed__allocate_mesh.",
        )
    found = workspace or _workspace(calls) or log.directory
    work = _Import(Names({**paths, **({"workspace": found} if found else {})}), redact, found, dict(at_first))
    steps = tuple(work.told(step) for entry in log.entries for step in work.steps(entry, tools, shell))
    used = dict.fromkeys(tools[mcp_tool(call.name)] for call in calls)
    more = [toolset for toolset in used if toolset not in default_toolsets]
    first = _first_mesh(calls)
    header = Header(
        title=redact(_title(log)),
        workspace="workspace",
        scheduler=str(first.get("scheduler", "local")),
        toolsets=",".join(["default", *more]),
        shape={key: first[key] for key in ("hosts", "procs_per_host") if isinstance(first.get(key), int)},
        imported_from=f"Claude Code {log.version}".strip(),
    )
    left_out = work.left_out + Counter({"calls without an answer": log.unanswered})
    return Imported(Transcript(header=header, steps=steps), work.files, {**+left_out})


class _Import:
    """One import under way: `files` as they were at first, `now` as they are after the steps so far."""

    def __init__(
        self, names: Names, redact: Callable[[str], str], workspace: str, files: dict[str, str]
    ) -> None:
        self._names = names
        self._redact = redact
        self._workspace = workspace
        self.files = {name: redact(text) for name, text in files.items()}
        self._now = files
        self.left_out: Counter[str] = Counter()

    def steps(self, entry: Said | ToolUse, tools: Mapping[str, str], shell: ShellSteps) -> Iterator[Step]:
        if isinstance(entry, Said):
            yield SayStep(text=f"> {entry.text}" if entry.by_user else entry.text)
        elif (name := mcp_tool(entry.name)) in tools:
            yield _tool_step(name, entry)
        elif entry.name in ("Edit", "MultiEdit", "Write"):
            yield from self._edit(entry)
        elif entry.name == "Read":
            self._learn(entry)
        elif entry.name == "Bash":
            yield from self._command(entry, shell)
        else:
            self.left_out[f"uses of {entry.name}"] += 1

    def told(self, step: Step) -> Step:
        """Without secrets, and with names for what differs from session to session."""
        if isinstance(step, EditStep):
            return step
        if isinstance(step, ToolStep):
            self._names.find(step.arguments)
            self._names.find(step.result if step.result is not None else step.text)
        fields = mapped(step.model_dump(exclude={"kind"}), self._redact)
        return step.model_validate(self._names.abstract(fields))

    def _edit(self, use: ToolUse) -> Iterator[Step]:
        file = self._inside(_text(use.arguments, "file_path"))
        if use.is_error or file is None:
            self.left_out["edits that failed or are outside of the workspace"] += 1
            return
        before = self._before(file, use)
        after = _after(before, use.arguments)
        if after is None:
            self.left_out["edits of files whose text is not in the log"] += 1
            return
        self._now[file] = after
        # Of texts without secrets, so that it fits the file as it is written down.
        new = self._redact(after)
        if before is None:
            yield EditStep(file=file, text=new)
        elif diff := make_diff(self._redact(before), new, file):
            yield EditStep(file=file, diff=diff)

    def _before(self, file: str, use: ToolUse) -> str | None:
        """What the log says of it; None for a file that was not there."""
        if "originalFile" in use.known:
            before = _text(use.known, "originalFile") if use.known["originalFile"] is not None else None
        else:
            before = self._now.get(file)
        if file not in self._now and before is not None:
            self.files[file] = self._redact(before)
        return before

    def _learn(self, use: ToolUse) -> None:
        """A file that was read as a whole is known."""
        read = use.known.get("file")
        file = self._inside(_text(read, "filePath")) if isinstance(read, dict) else None
        if not isinstance(read, dict) or file is None or file in self._now:
            return
        if read.get("startLine") == 1 and read.get("numLines") == read.get("totalLines"):
            self._now[file] = _text(read, "content")
            self.files[file] = self._redact(self._now[file])

    def _command(self, use: ToolUse, shell: ShellSteps) -> Iterator[Step]:
        command = _text(use.arguments, "command")
        if shell == "none" or (shell == "installs" and not _INSTALLS.search(command)):
            self.left_out["commands on the client's machine"] += 1
            return
        known = [_text(use.known, "stdout"), _text(use.known, "stderr")]
        output = "\n".join(filter(None, known)) or use.text
        failed = re.match(r"Exit code (\d+)", use.text)
        code = int(failed[1]) if failed else int(use.is_error)
        yield ShellStep(
            command=command, exit=code, output=output[-_OUTPUT:], duration_s=round(use.duration_s, 2)
        )

    def _inside(self, path: str) -> str | None:
        """Its name in the workspace; None for what is elsewhere."""
        if not path or not self._workspace:
            return None
        try:
            name = PurePosixPath(self._workspace, path).relative_to(self._workspace)
        except ValueError:
            return None
        return None if ".." in name.parts or not name.parts else name.as_posix()


def _tool_step(name: str, use: ToolUse) -> ToolStep:
    """Clients show their model what is structured as its JSON alone."""
    result = None
    if not use.is_error and use.text.lstrip().startswith("{"):
        try:
            result = json.loads(use.text)
        except (ValueError, RecursionError):
            result = None
    return ToolStep(
        name=name,
        arguments=dict(use.arguments),
        result=result if isinstance(result, dict) else None,
        text="" if isinstance(result, dict) else use.text,
        is_error=use.is_error,
        duration_s=round(use.duration_s, 2),
    )


def _after(before: str | None, arguments: Mapping[str, Any]) -> str | None:
    """None where the edit does not fit what is known of the file."""
    if "content" in arguments:
        return _text(arguments, "content")
    edits = arguments.get("edits")
    text = before
    for edit in edits if isinstance(edits, list) else [arguments]:
        old, new = _text(edit, "old_string"), _text(edit, "new_string")
        if not old and text is None:
            text = new
        elif text is None or not old or old not in text:
            return None
        else:
            text = text.replace(old, new) if edit.get("replace_all") else text.replace(old, new, 1)
    return text


def _workspace(calls: list[ToolUse]) -> str:
    return next(
        (path for call in calls if (path := _text(call.arguments, "workspace")).startswith("/")), ""
    ) or _text(_first_mesh(calls), "workspace")


def _first_mesh(calls: list[ToolUse]) -> dict[str, Any]:
    for call in calls:
        if mcp_tool(call.name) == "allocate_mesh":
            return _tool_step("allocate_mesh", call).result or {}
    return {}


def _title(log: Log) -> str:
    asked = next((one.text for one in log.entries if isinstance(one, Said) and one.by_user), "")
    return asked.split("\n", 1)[0][:100]


def _text(fields: Any, name: str) -> str:
    found = fields.get(name) if isinstance(fields, Mapping) else None
    return found if isinstance(found, str) else ""
