"""A short report of grouped stacks for a reader with few tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...runtime.records import Frame, ProcessStacks, ThreadStack
from .frames import is_library, is_native, place, short_path, split_runs
from .stacks import StackGroup, innermost_user, main_thread, name_members, stack_key, verdict
from .waits import find_wait

__all__ = ["SourceLine", "render"]

SourceLine = Callable[[str, int], str | None]


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much is shown; a report that is too long is made again with less."""

    groups: int
    frames: int
    threads: int
    source: int
    locals: int
    children: int


_DETAILS = (
    _Detail(groups=32, frames=16, threads=4, source=100, locals=8, children=4),
    _Detail(groups=16, frames=8, threads=2, source=80, locals=4, children=3),
    _Detail(groups=8, frames=4, threads=1, source=60, locals=2, children=2),
    _Detail(groups=4, frames=3, threads=0, source=40, locals=0, children=1),
    _Detail(groups=2, frames=1, threads=0, source=0, locals=0, children=1),
)


def render(
    groups: Sequence[StackGroup],
    *,
    procs: Sequence[Sequence[StackGroup]] = (),
    finding: str = "",
    world_size: int | None = None,
    max_bytes: int = 1400,
    source_line: SourceLine | None = None,
    workspace: str = "",
) -> str:
    """The verdict, then each group with its frames, innermost first; at most `max_bytes` in UTF-8.

    Args:
        procs: the groups of each mesh of procs that the run has spawned.
        finding: what is known of the procs together, in place of their verdicts.
        world_size: ranks of the run; by default those of the groups.
        source_line: gives the text of a line of a file, None where it is not known.
        workspace: paths below it are shown relative to it.
    """
    own = verdict(groups, _size(groups) if world_size is None else world_size, workspace=workspace)
    others = [] if finding else [verdict(of, _size(of), workspace=workspace) for of in procs]
    line = "; ".join(filter(None, (finding, own, *others)))
    text = line
    for detail in _DETAILS:
        report = _Report(detail, source_line or (lambda _file, _line: None), workspace)
        text = "\n".join([line, *report.lines(groups), *(each for of in procs for each in report.lines(of))])
        if len(text.encode()) <= max_bytes:
            return text
    return text.encode()[: max(0, max_bytes)].decode("utf-8", "ignore")


def _size(groups: Sequence[StackGroup]) -> int:
    return sum(len(group.ranks) for group in groups)


@dataclass(frozen=True, slots=True)
class _Report:
    detail: _Detail
    source_line: SourceLine
    workspace: str

    def lines(self, groups: Sequence[StackGroup]) -> Iterator[str]:
        live = [group for group in groups if not group.error and not group.idle]
        shared = _shared(live) if len(live) > 1 else 0
        for group in live[: self.detail.groups]:
            yield from self._group(group, shared)
        left_out = live[self.detail.groups :]
        if left_out:
            ranks = [rank for group in left_out for rank in group.ranks]
            who = name_members(left_out[0].example.procs, ranks)
            step = "" if left_out[0].example.procs else "; ask for these ranks alone"
            yield f"{who}: {len(left_out)} more groups{step}"
        if shared:
            yield "all of these, further out:"
            yield from self._frames(live[0].frames[len(live[0].frames) - shared :])
        yield from self._children(groups)
        notes = dict.fromkeys(group.example.note for group in groups if group.example.note)
        yield from (f"note: {note}" for note in notes)

    def _group(self, group: StackGroup, shared: int) -> Iterator[str]:
        example = group.example
        about = [group.calls] if group.calls else []
        about += [group.wait.what] if group.wait.what else []
        about += [f"state {example.os_state}"] if example.os_state in ("D", "T", "Z") else []
        about += [f"dumped {example.source}"] if example.source != "py-spy" else []
        header = f"{group.name}{' (' + ', '.join(about) + ')' if about else ''}:"
        yield header
        yield from self._frames(group.frames[: len(group.frames) - shared])
        native = [frame.function for frame in _native_top(example) if not frame.function.startswith("0x")]
        if native and self.detail.threads:
            yield f"  native: {' < '.join(_brief(name) for name in native[:4])}"
        yield from self._threads(example)

    def _frames(self, frames: Sequence[Frame]) -> Iterator[str]:
        shown = 0
        for library, run in split_runs(frames):
            if library:
                if shown:
                    name = short_path(run[-1].file).split("/")[0].removesuffix(".py")
                    yield f"  ... {len(run)} of {name}"
                continue
            for frame in run:
                if shown == self.detail.frames:
                    rest = sum(not is_library(other.file) for other in frames) - shown
                    yield f"  ... {rest} more frames"
                    return
                shown += 1
                yield self._frame(frame)
                yield from self._locals(frame)
        if not shown and frames:
            yield self._frame(frames[0])

    def _frame(self, frame: Frame) -> str:
        source = (self.source_line(frame.file, frame.line) or "").strip() if self.detail.source else ""
        if len(source) > self.detail.source:
            source = f"{source[: self.detail.source]}..."
        return f"  {place(frame, self.workspace)}{': ' + source if source else ''}"

    def _locals(self, frame: Frame) -> Iterator[str]:
        for name, value in frame.locals[: self.detail.locals]:
            yield f"    {name} = {value if len(value) <= 80 else value[:77] + '...'}"

    def _threads(self, process: ProcessStacks) -> Iterator[str]:
        main = main_thread(process)
        others = [thread for thread in process.threads if thread is not main]
        own = [(thread, frame) for thread in others if (frame := innermost_user(thread.frames)) is not None]
        for thread, frame in own[: self.detail.threads]:
            yield f"  thread {thread.thread}{_thread_words(thread)} {place(frame, self.workspace)}"

    def _children(self, groups: Sequence[StackGroup]) -> Iterator[str]:
        """Other Python processes of the ranks, those at one place together."""
        alike: dict[tuple[object, ...], list[ProcessStacks]] = {}
        for group in groups:
            for child in group.children:
                alike.setdefault(stack_key(child), []).append(child)
        for members in list(alike.values())[: self.detail.children]:
            count = f"{len(members)} children" if len(members) > 1 else f"child {members[0].pid}"
            ranks = name_members(members[0].procs, [member.rank for member in members])
            yield f"{count} of {ranks}: {self._child_place(members[0])}"
        if len(alike) > self.detail.children:
            rest = [member for members in list(alike.values())[self.detail.children :] for member in members]
            who = name_members(rest[0].procs, [member.rank for member in rest])
            yield f"{len(rest)} more children of {who}"

    def _child_place(self, child: ProcessStacks) -> str:
        thread = main_thread(child)
        if thread is None:
            return child.error or "no Python stack"
        python = [frame for frame in thread.frames if not is_native(frame.file)]
        wait = find_wait(python)
        role = " (DataLoader worker)" if any(_is_worker(frame) for frame in python) else ""
        frame = innermost_user(python) or (python[0] if python else None)
        at = self._frame(frame).strip() if frame else "no Python frame"
        return f"{wait.what + ' at ' if wait.what else 'at '}{at}{role}"


def _is_worker(frame: Frame) -> bool:
    return frame.function == "_worker_loop" and frame.file.endswith("torch/utils/data/_utils/worker.py")


def _thread_words(thread: ThreadStack) -> str:
    return " holds the GIL at" if thread.owns_gil else " runs at" if thread.active else " at"


def _native_top(process: ProcessStacks) -> Iterator[Frame]:
    """The native frames that the main thread is in now."""
    thread = main_thread(process)
    for frame in thread.frames if thread else ():
        if not is_native(frame.file):
            return
        yield frame


def _brief(function: str) -> str:
    return function.split("(", 1)[0].split("<", 1)[0][:60]


def _shared(groups: Sequence[StackGroup]) -> int:
    """How many outermost frames all groups have in common; each keeps its innermost user frame to itself."""
    shared = 0
    for level in zip(*(_outside(group.frames)[::-1] for group in groups), strict=False):
        if len({(frame.function, frame.file, frame.line) for frame in level}) > 1:
            break
        shared += 1
    return shared


def _outside(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames outside the innermost one of the user's."""
    own = next((at for at, frame in enumerate(frames) if not is_library(frame.file)), 0)
    return frames[own + 1 :]
