"""Profiles of ranks: merged, their hot functions, and which ranks differ from the others. Pure.

A sample counts for the innermost function of the user's in it, whatever libraries that called: libraries are
rarely what a user can change. Shares are of samples.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...runtime.profiling import FoldedStack
from ...runtime.records import Frame
from .frames import is_library, without_host

__all__ = [
    "Difference",
    "Function",
    "HotFunction",
    "RankSamples",
    "count_samples",
    "differences",
    "group_ranks",
    "hot_functions",
    "hot_libraries",
    "merge",
]

# Distributions of two ranks are alike up to this distance (0: the same, 1: nothing in common), and what
# chance adds to that with few samples.
_ALIKE = 0.3
_CHANCE = 1.0
# One that has less than a third of another's samples waits where the other works.
_FEW = 1 / 3
_TOO_FEW = 20
_CLEAR = 0.15


@dataclass(frozen=True, slots=True, order=True)
class Function:
    name: str
    file: str


@dataclass(frozen=True, slots=True)
class RankSamples:
    """A rank's own stacks, and those of the processes below it. `possible`: how many samples of one thread
    there could be.
    """

    rank: int
    stacks: tuple[FoldedStack, ...]
    children: tuple[FoldedStack, ...] = ()
    possible: int = 0

    @property
    def samples(self) -> int:
        return count_samples(self.stacks)


@dataclass(frozen=True, slots=True)
class HotFunction:
    """Shares from 0 to 1. `own`: it is the innermost one of the user's. `total`: it is anywhere in the stack.

    `lines`: (line, share, what that calls most in libraries or None) of `own`, the hottest first.
    """

    function: Function
    own: float
    total: float
    lines: tuple[tuple[int, float, Function | None], ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """What sets ranks apart the most: the share of a function there, and in all others. Without a function,
    how many of the samples that there could be they have.
    """

    ranks: tuple[int, ...]
    function: Function | None
    here: float
    elsewhere: float


def merge(ranks: Iterable[Sequence[FoldedStack]]) -> tuple[FoldedStack, ...]:
    """Equal stacks of all ranks as one; the script of a run is the same on all hosts."""
    counts: Counter[tuple[Frame, ...]] = Counter()
    for stacks in ranks:
        for stack in stacks:
            counts[tuple(map(_everywhere, stack.frames))] += stack.count
    return tuple(FoldedStack(frames, count) for frames, count in counts.most_common())


def count_samples(stacks: Iterable[FoldedStack]) -> int:
    return sum(stack.count for stack in stacks)


def hot_functions(stacks: Sequence[FoldedStack]) -> tuple[HotFunction, ...]:
    """Functions of the user's, those with the most samples of their own first; of a stack without any, the
    outermost function of a library stands for it.
    """
    samples = max(1, count_samples(stacks))
    own: Counter[Function] = Counter()
    total: Counter[Function] = Counter()
    lines: dict[Function, Counter[int]] = defaultdict(Counter)
    calls: dict[tuple[Function, int], Counter[Function]] = defaultdict(Counter)
    for stack in stacks:
        innermost = _charged(stack)
        function = _function(innermost)
        own[function] += stack.count
        lines[function][innermost.line] += stack.count
        if stack.frames[-1] is not innermost:
            calls[function, innermost.line][_function(stack.frames[-1])] += stack.count
        for each in {_function(frame) for frame in stack.frames if not is_library(frame.file)} | {function}:
            total[each] += stack.count

    def inside(function: Function, line: int) -> Function | None:
        found = calls[function, line].most_common(1)
        return found[0][0] if found and 2 * found[0][1] >= lines[function][line] else None

    return tuple(
        HotFunction(
            function,
            count / samples,
            total[function] / samples,
            tuple((line, of / samples, inside(function, line)) for line, of in lines[function].most_common()),
        )
        for function, count in _in_order(own)
    )


def hot_libraries(stacks: Sequence[FoldedStack]) -> tuple[tuple[Function, float], ...]:
    """Innermost functions that are of libraries, with their share of all samples."""
    samples = max(1, count_samples(stacks))
    found: Counter[Function] = Counter()
    for stack in stacks:
        if is_library(stack.frames[-1].file):
            found[_function(stack.frames[-1])] += stack.count
    return tuple((function, count / samples) for function, count in _in_order(found))


def group_ranks(ranks: Sequence[RankSamples]) -> tuple[tuple[RankSamples, ...], ...]:
    """Ranks that spend their time alike, the smallest group first: of the odd ones one wants to know."""
    groups: list[list[RankSamples]] = []
    shares: list[tuple[float, Mapping[Function, float]]] = []  # of the first in each group
    longest = max((rank.possible for rank in ranks), default=0)
    brief = [rank for rank in ranks if rank.possible < min(longest, _TOO_FEW)]
    for rank in sorted(ranks, key=lambda rank: rank in brief):
        if rank in brief and groups:  # it ended, and tells too little to differ
            groups[0].append(rank)
            continue
        mine = (rank.samples * (longest / rank.possible if rank.possible else 1.0), _shares(rank.stacks))
        for at, first in enumerate(shares):
            if _alike(mine, first):
                groups[at].append(rank)
                break
        else:
            groups.append([rank])
            shares.append(mine)
    return tuple(tuple(group) for group in sorted(groups, key=len))


def differences(groups: Sequence[Sequence[RankSamples]]) -> tuple[Difference, ...]:
    """What sets each group apart that is smaller than the largest, or each of two that are as large."""
    if len(groups) < 2:
        return ()
    largest = max(map(len, groups))
    odd = [group for group in groups if len(group) < largest] or list(groups)
    found = []
    for group in odd:
        others = [rank for other in groups if other is not group for rank in other]
        members = tuple(rank.rank for rank in group)
        here, elsewhere = _mean(group), _mean(others)
        if here and elsewhere:
            most = max(here | elsewhere, key=lambda one: (abs(here.get(one, 0) - elsewhere.get(one, 0)), one))
            difference = Difference(members, most, here.get(most, 0.0), elsewhere.get(most, 0.0))
            if abs(difference.here - difference.elsewhere) >= _CLEAR:
                found.append(difference)
                continue
        found.append(Difference(members, None, _busy(group), _busy(others)))
    return tuple(found)


def _busy(ranks: Sequence[RankSamples]) -> float:
    return sum(rank.samples for rank in ranks) / max(1, sum(rank.possible for rank in ranks))


def _alike(
    one: tuple[float, Mapping[Function, float]], other: tuple[float, Mapping[Function, float]]
) -> bool:
    """Of samples in the same time."""
    fewer, more = sorted((one[0], other[0]))
    if fewer < _TOO_FEW or fewer < _FEW * more:
        return more < _TOO_FEW or fewer >= _FEW * more
    distance = sum(abs(one[1].get(f, 0.0) - other[1].get(f, 0.0)) for f in {*one[1], *other[1]}) / 2
    return distance <= _ALIKE + _CHANCE / math.sqrt(fewer)


def _mean(ranks: Sequence[RankSamples]) -> dict[Function, float]:
    """Of ranks that have samples, each as much as the other."""
    each = [_shares(rank.stacks) for rank in ranks if rank.samples >= _TOO_FEW]
    functions = {function for shares in each for function in shares}
    return {function: sum(shares.get(function, 0.0) for shares in each) / len(each) for function in functions}


def _shares(stacks: Sequence[FoldedStack]) -> dict[Function, float]:
    counts: Counter[Function] = Counter()
    for stack in stacks:
        counts[_function(_charged(stack))] += stack.count
    samples = max(1, sum(counts.values()))
    return {function: count / samples for function, count in counts.items()}


def _charged(stack: FoldedStack) -> Frame:
    for frame in reversed(stack.frames):
        if not is_library(frame.file):
            return frame
    return stack.frames[0]


def _function(frame: Frame) -> Function:
    return Function(_name(frame.function), without_host(frame.file))


def _everywhere(frame: Frame) -> Frame:
    file, name = without_host(frame.file), _name(frame.function)
    return frame if (name, file) == (frame.function, frame.file) else Frame(name, file, frame.line)


def _name(function: str) -> str:
    """Native code without a name has an address instead, another one in each process."""
    return "?" if function.startswith("0x") else function


def _in_order(counts: Mapping[Function, int]) -> list[tuple[Function, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
