"""Rules for hosts whose surroundings differ: packages, Python, drivers, variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from ....runtime.consequences import is_consequence
from .case import RankCase, RunCase, names, numbers
from .finding import Finding
from .raised import UNEQUAL

__all__ = ["find_drift"]

# What each rank has of its own, or each host by its place.
_OWN = re.compile(
    r"(?:\w*RANK|LOCAL_WORLD_SIZE|MASTER_\w+|sys\.\w+|PATH|HOME|USER|LOGNAME|HOST\w*|\w*ADDR\w*|\w*SOCKET\w*|"
    r"\w*VISIBLE_DEVICES|OLDPWD|PWD|SHLVL|_|PYTHONPATH|CUBLAS_WORKSPACE_CONFIG|TORCHELASTIC_\w+)$"
)
_SHOWN = 60


def find_drift(case: RunCase) -> Iterator[Finding]:
    """What differs between hosts, and by how much that explains a failure; without one it is no cause."""
    if len({one.host for one in case.ranks}) < 2 and len(case.ranks) < 2:
        return
    first = case.first_failure
    words = (
        ""
        if first is None
        else f"{first.failure}\n{first.failure and first.failure.traceback}\n{first.text[-800:]}"
    )
    # Of a rank whose tensors have another size something was set up otherwise.
    sizes = any(
        one.failed and UNEQUAL.search(f"{one.failure or ''}\n{one.text[-3000:]}") for one in case.ranks
    )
    for what, name, values in _differences(case):
        by_value: dict[str, list[RankCase]] = {}
        for rank in case.ranks:
            by_value.setdefault(values[rank.rank], []).append(rank)
        raised = [one.rank for one in case.ranks if one.failed and not _follows(one)]
        odd = min(
            by_value.values(), key=lambda ranks: (len(ranks), not any(one.rank in raised for one in ranks))
        )
        named = re.search(rf"\b{re.escape(name)}\b", words, re.IGNORECASE) is not None or any(
            len(value) > 3 and value in words for value in by_value
        )
        one_sided = first is not None and all(
            one in odd for one in case.ranks if one.failed and not _follows(one)
        )
        if first is None and not _numbers_differ(case, odd):
            continue
        certainty = 89 if named and one_sided else 80 if named else 74 if one_sided else 52
        if sizes and one_sided:
            certainty = max(certainty, 83)
        told = ", ".join(
            f"{names(ranks)}: {value[:_SHOWN] or 'not set'}" for value, ranks in list(by_value.items())[:3]
        )
        hosts = sorted({one.host for one in odd})
        failed = (
            f"rank {first.rank}: {str(first.failure)[:160]}" if first is not None and first.failure else ""
        )
        yield Finding(
            "environment_drift",
            certainty,
            f"{what} {name} differs between ranks ({told}): host {', '.join(map(str, hosts))} is the"
            " odd one.",
            numbers(odd),
            tuple(filter(None, (failed,))),
            "Give all hosts the same: one environment in the workspace (.venv), or env= of the run.",
        )


def _differences(case: RunCase) -> Iterator[tuple[str, str, Mapping[int, str]]]:
    """What, its name, and its value on each rank; the most telling first."""
    kinds: tuple[tuple[str, Callable[[RankCase], Mapping[str, str]]], ...] = (
        ("Python", lambda one: {"version": one.fingerprint.python}),
        ("Package", _modules),
        ("Package", lambda one: one.fingerprint.packages),
        ("Torch's build", lambda one: {"torch": one.fingerprint.torch}),
        ("Driver", lambda one: {"driver": one.fingerprint.driver}),
        (
            "Script",
            lambda one: {one.fingerprint.script.rsplit("/", 1)[-1] or "script": one.fingerprint.script_hash},
        ),
        ("Variable", _variables),
    )
    for what, of in kinds:
        told = {one.rank: of(one) for one in case.ranks}
        known = [values for values in told.values() if values]
        if len(known) < 2:
            continue
        for name in dict.fromkeys(name for values in known for name in values):
            values = {rank: told[rank].get(name, "") for rank in told}
            compared = {value for rank, value in values.items() if told[rank]}
            if len(compared) > 1 and not (
                what != "Variable" and "" in compared and len(compared) == 2 and what != "Package"
            ):
                yield what, name, values


def _modules(one: RankCase) -> Mapping[str, str]:
    """Versions of what was really imported; of what has none, where it came from."""
    return {name: version for name, (version, _) in one.fingerprint.modules.items() if version}


def _variables(one: RankCase) -> Mapping[str, str]:
    return {name: value for name, value in one.fingerprint.variables.items() if not _OWN.match(name)}


def _follows(one: RankCase) -> bool:
    failure = one.failure
    return failure is not None and (is_consequence(str(failure)) or is_consequence(failure.cause))


def _numbers_differ(case: RunCase, odd: list[RankCase]) -> bool:
    """Whether the odd ranks' last metrics are others than those of the rest."""
    mine = [one.metrics.last.values for one in odd if one.metrics is not None]
    theirs = [one.metrics.last.values for one in case.ranks if one not in odd and one.metrics is not None]
    if not mine or not theirs:
        return False
    for name in set(mine[0]) & set(theirs[0]):
        if "loss" in name and abs(mine[0][name] - theirs[0][name]) > 0.3 * max(abs(theirs[0][name]), 1e-6):
            return True
    return False
