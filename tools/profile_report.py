"""A profile as a short text: which ranks differ, and each group's hot functions. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..runtime.mesh import format_ranks
from ..runtime.profiling import ProfileRequest, RankProfile, TorchOp, parse_folded
from .verdicts.frames import short_path
from .verdicts.profile import (
    Difference,
    Function,
    HotFunction,
    RankSamples,
    count_samples,
    differences,
    group_ranks,
    hot_functions,
    hot_libraries,
    merge,
)
from .words import clip

__all__ = ["MAX_BYTES", "ProfileCase", "SourceLine", "group_title", "read_ranks", "report"]

MAX_BYTES = 2000
SourceLine = Callable[[str, int], str | None]
_LEAST_SHARE = 0.02
_WAITS = 0.1


@dataclass(frozen=True, slots=True)
class ProfileCase:
    """What a report is made of. `ops` are torch's, of the ranks `traced`; `problems` those that had none."""

    run: str
    request: ProfileRequest
    ranks: tuple[RankSamples, ...]
    errors: Mapping[int, str]
    notes: Mapping[int, str]
    traced: tuple[int, ...] = ()
    ops: tuple[TorchOp, ...] = ()
    problems: Mapping[int, str] | None = None
    workspace: str = ""


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much is shown; a report that is too long is made again with less."""

    groups: int
    functions: int
    lines: int
    source: int
    others: int


_DETAILS = (
    _Detail(groups=6, functions=5, lines=4, source=70, others=3),
    _Detail(groups=4, functions=4, lines=3, source=50, others=3),
    _Detail(groups=3, functions=3, lines=2, source=40, others=2),
    _Detail(groups=2, functions=2, lines=1, source=0, others=1),
    _Detail(groups=1, functions=1, lines=0, source=0, others=1),
)


def read_ranks(
    profiles: Sequence[RankProfile], own_text: Callable[[str], str], left_out: str
) -> tuple[RankSamples, ...]:
    """The samples of ranks that have any profile. Threads that begin below `left_out` are ours, and so are
    frames there that are between the user's and others."""
    found = []
    for one in profiles:
        if one.error:
            continue
        stacks = [
            replace(stack, frames=tuple(one for one in stack.frames if not one.file.startswith(left_out)))
            for stack in parse_folded(own_text(one.folded))
            if not (stack.frames and stack.frames[0].file.startswith(left_out))
        ]
        own = tuple(stack for stack in stacks if stack.pid in (None, one.pid))
        below = tuple(stack for stack in stacks if stack.pid not in (None, one.pid))
        found.append(RankSamples(one.rank, own, below, round(one.seconds * one.rate)))
    return tuple(found)


def group_title(ranks: Sequence[RankSamples]) -> str:
    return _named([rank.rank for rank in ranks])


def report(case: ProfileCase, source_line: SourceLine, files: Sequence[str] = ()) -> str:
    """At most `MAX_BYTES` in UTF-8, with the lines about its files at the end."""
    room = MAX_BYTES - len("\n".join(["", *files]).encode())
    text = ""
    for detail in _DETAILS:
        text = "\n".join(_Report(case, detail, source_line).lines())
        if len(text.encode()) <= room:
            break
    return "\n".join([text.encode()[: max(0, room)].decode("utf-8", "ignore"), *files])


@dataclass(frozen=True, slots=True)
class _Report:
    case: ProfileCase
    detail: _Detail
    source_line: SourceLine

    def lines(self) -> Iterator[str]:
        groups = group_ranks(self.case.ranks)
        yield self._head()
        yield from map(self._difference, differences(groups)[: self.detail.groups])
        for group in groups[: self.detail.groups]:
            yield from self._group(group)
        if rest := [rank.rank for group in groups[self.detail.groups :] for rank in group]:
            yield f"{_named(rest)}: {len(groups) - self.detail.groups} more groups; ask for these ranks alone"
        yield from self._children()
        yield from self._torch()
        yield from self._told(self.case.errors, "no profile: ")
        yield from self._told(self.case.notes, "note: ")

    def _head(self) -> str:
        request = self.case.request
        which = (
            "holding the GIL"
            if request.gil
            else "waiting or not"
            if request.idle
            else "that run or are ready to"
        )
        return (
            f"{self.case.run}: {request.seconds:g} s at {request.rate} samples a second of threads {which};"
            " shares of samples, what libraries do counted for your line that calls them"
        )

    def _difference(self, one: Difference) -> str:
        head = f"{_named(one.ranks)} differ{'' if len(one.ranks) > 1 else 's'}: {_percent(one.here)}"
        what = f"in {self._name(one.function)}" if one.function is not None else "of its time on a CPU"
        return f"{head} {what}, elsewhere {_percent(one.elsewhere)}"

    def _group(self, group: Sequence[RankSamples]) -> Iterator[str]:
        samples = sum(rank.samples for rank in group)
        possible = sum(rank.possible for rank in group)
        each = f", {samples // len(group):,} a rank" if len(group) > 1 else ""
        busy = samples / possible if possible else 0.0
        words = f"{samples:,} samples{each}"
        if not self.case.request.idle:
            words += f" of {possible:,} possible"
            words += "; hardly on a CPU, it waits: stack_dump tells where" if busy < _WAITS else ""
        yield f"{group_title(group)} ({words}):"
        stacks = merge(rank.stacks for rank in group)
        hot = [one for one in hot_functions(stacks) if one.own >= _LEAST_SHARE]
        for one in hot[: self.detail.functions]:
            yield from self._function(one)
        libraries = [one for one in hot_libraries(stacks) if one[1] >= _LEAST_SHARE]
        if libraries:
            told = [
                f"{_percent(share)} {self._name(name)}" for name, share in libraries[: self.detail.others]
            ]
            yield f"  in libraries: {', '.join(told)}"

    def _function(self, one: HotFunction) -> Iterator[str]:
        (line, share, inside), *_ = one.lines
        total = f" (with all it calls {_percent(one.total)})" if one.total - one.own >= _LEAST_SHARE else ""
        if share >= 0.9 * one.own:
            words = f"{total}{self._source(one, line, inside)}"
            yield f"  {_percent(one.own)} {self._name(one.function, line)}{words}"
            return
        yield f"  {_percent(one.own)} {self._name(one.function)}{total}"
        for line, share, inside in one.lines[: self.detail.lines]:
            if share >= _LEAST_SHARE:
                yield f"    {_percent(share)} line {line}{self._source(one, line, inside)}"

    def _source(self, one: HotFunction, line: int, inside: Function | None) -> str:
        """The text of a line, and what takes the time in it where that is a library."""
        source = (self.source_line(one.function.file, line) or "").strip() if self.detail.source else ""
        words = f": {clip(source, self.detail.source)}" if source else ""
        return f"{words} [{inside.name}]" if inside is not None else words

    def _name(self, function: Function, line: int = 0) -> str:
        where = short_path(function.file, self.case.workspace)
        return f"{function.name} ({where}{f':{line}' if line else ''})" if where else function.name

    def _children(self) -> Iterator[str]:
        parents = [rank for rank in self.case.ranks if rank.children]
        if not parents:
            return
        stacks = merge(rank.children for rank in parents)
        hot = [one for one in hot_functions(stacks) if one.own >= _LEAST_SHARE]
        told = [
            f"{_percent(one.own)} {self._name(one.function, one.lines[0][0])}"
            for one in hot[: self.detail.others]
        ]
        who = _named([rank.rank for rank in parents])
        yield f"child processes of {who} ({count_samples(stacks):,} samples): {', '.join(told)}"

    def _torch(self) -> Iterator[str]:
        for device, where in ((False, "on the CPU"), (True, "on devices")):
            ops = [op for op in self.case.ops if op.device == device]
            whole = sum(op.self_s for op in ops)
            if not whole:
                continue
            told = [
                f"{_percent(op.self_s / whole)} {clip(op.name, 60)} ({op.count:,} times)"
                for op in ops[: self.detail.functions]
            ]
            yield f"torch {where}, own time of operations, {_named(self.case.traced)}: {', '.join(told)}"
        yield from self._told(self.case.problems or {}, "no torch profile: ")

    def _told(self, words: Mapping[int, str], before: str) -> Iterator[str]:
        alike: dict[str, list[int]] = defaultdict(list)
        for rank, text in words.items():
            alike[text].append(rank)
        for text, ranks in list(alike.items())[:3]:
            yield f"{_named(ranks)}: {before}{clip(text, 160)}"


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {clip(format_ranks(ranks), 60)}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
