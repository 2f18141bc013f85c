"""Every program of the tests, asked about once: is it told its cause?

Each is run from this process through the tool, as in `tests/diagnosis/test_cases.py`; unlike there, none is
asked about again. `MILKWEED_BENCH_CASES=left_early/*,slow/*` chooses some.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from fnmatch import fnmatch

import anyio

from tests.diagnosis.cases import CASES, Case
from tests.diagnosis.judging import FINE, FIRST_SIX, MOST_BYTES, Judged, Told, ask, judge
from tests.diagnosis.running import check_case, run_case
from tests.real_meshes import open_places, open_real_meshes

from ..harness import Line, worst

__all__ = ["Asked", "lines_of", "run"]

Asked = tuple[Case, Judged, Told | None]

# At the `ready` line the fault is there or about to come; who asks has seen nothing move for a while.
_SETTLE_S = 2.0


async def run(*, quick: bool) -> AsyncIterator[Line]:
    os.environ["MILKWEED_WARM_MODULES"] = ""
    wanted = os.environ.get("MILKWEED_BENCH_CASES", "")
    found: dict[str, list[Asked]] = defaultdict(list)
    for case in CASES:
        if wanted and not any(fnmatch(case.name, one) for one in wanted.split(",")):
            continue
        if quick and not wanted and not case.name.endswith("/plain") and case.kind != "healthy":
            continue
        if why := check_case(case):
            print(f"cases: {case.name} cannot be had here: {why}", file=sys.stderr)
            continue
        judged, told = await _asked(case)
        found[case.kind].append((case, judged, told))
        amiss = "; ".join(judged.amiss)
        print(f"cases: {judged.verdict} {case.name} {amiss}", file=sys.stderr, flush=True)
        if (judged.verdict != "right" or judged.amiss) and told is not None:
            print(told.text, file=sys.stderr)
    for line in lines_of(found):
        yield line


async def _asked(case: Case) -> tuple[Judged, Told | None]:
    with open_places() as places:
        async with open_real_meshes(places) as meshes:
            try:
                async with run_case(case, meshes) as running:
                    if case.while_running:
                        await anyio.sleep(_SETTLE_S)
                    told = await ask(running, meshes)
            except (TimeoutError, OSError, RuntimeError) as error:
                return Judged("wrong", (f"could not be run: {str(error)[:300]}",)), None
    return judge(case, told), told


def lines_of(found: Mapping[str, Sequence[Asked]]) -> list[Line]:
    """The table. Pure."""
    lines = []
    others: list[float] = []
    for kind, asked in found.items():
        wrong = [float(judged.verdict != "right") for _, judged, _ in asked]
        if kind not in FINE and kind not in FIRST_SIX:
            others += wrong
        target = 0.0 if kind in FIRST_SIX or kind in FINE else None
        what = "a cause is told" if kind in FINE else "not right"
        note = _note([judged for _, judged, _ in asked], kind)
        lines.append(
            Line("cases", f"{kind}: {what}", f"of {len(asked)}", sum(wrong), tuple(wrong), target, note)
        )
    if others:
        share = 100 * sum(others) / len(others)
        note = "all kinds but the first six"
        lines.append(Line("cases", "the other kinds: not right", "%", share, tuple(others), 10.0, note))
    sizes = [float(told.size) for asked in found.values() for _, _, told in asked if told is not None]
    seconds = [
        told.seconds for asked in found.values() for case, _, told in asked if told and case.while_running
    ]
    amiss = [float(bool(judged.amiss)) for asked in found.values() for _, judged, _ in asked]
    if sizes:
        lines.append(worst("cases", "the longest answer", "bytes", sizes, MOST_BYTES))
    if seconds:
        lines.append(worst("cases", "the longest time, runs of 2 to 4 ranks", "s", seconds, 3.0))
    if amiss:
        what = f"of {len(amiss)}"
        note = "of right ones too"
        lines.append(Line("cases", "ranks or place not told", what, sum(amiss), tuple(amiss), None, note))
    return lines


def _note(judged: list[Judged], kind: str) -> str:
    counts = {word: sum(one.verdict == word for one in judged) for word in ("right", "near", "wrong")}
    if kind in FINE:
        return ""
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)
