"""`python -m tests.diagnosis.record [CASE ...]`: records evidence of cases into `recorded/`.

To be run again where a program or the shape of evidence has changed. Only evidence that is told its cause is
written, and none that would tell of the machine.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio

import milkweed.runtime
from milkweed.runtime.client import Meshes
from milkweed.runtime.paths import Places
from milkweed.tools.diagnosis import describe
from milkweed.tools.verdicts.causes import RunCase, diagnose
from tests.diagnosis.cases import Case, find
from tests.diagnosis.judging import FINE, Judged, Told, judge
from tests.diagnosis.recording import WORKSPACE, as_text, load, record, recorded_case, strange_paths, tidied
from tests.diagnosis.running import RunningCase, run_case
from tests.real_meshes import open_places, open_real_meshes

RECORDED = Path(__file__).parent / "recorded"
CHOSEN = (
    "missing_module/pretrain",
    "nan_loss/plain",
    "left_early/plain",
    "left_early/scaler",
    "collective_mismatch/plain",
    "out_of_memory/plain",
    "straggler/plain",
    "environment_drift/plain",
    "exception/stream",
    "shape_mismatch/resume",
    "waiting_in_python/plain",
    "stuck_in_c/plain",
    "gil_held/plain",
    "worker_killed/plain",
    "segfault/collect",
    "shm_full/plain",
    "loss_not_falling/plain",
    "missing_rank/plain",
    "timeout_order/plain",
    "stopped/plain",
    "healthy/pretrain",
    "slow/reporting",
)
_MOST_BYTES = 60_000
_ATTEMPTS = 8


def judged(case: Case, run: RunCase) -> Judged:
    return judge(case, Told(describe(run, diagnose(run)).content(), 0.0))


async def record_case(case: Case, meshes: Meshes, places: Places) -> str:
    """The text of its file.

    Raises:
        RuntimeError: it is not told its cause, or the file would tell of this machine.
    """
    async with run_case(case, meshes) as running:
        for _ in range(_ATTEMPTS if case.while_running else 1):
            files = _files(running.workspace)
            recorded, seen = await record(case.name, running.mesh, running.run.run, files)
            if case.kind in FINE or judged(case, seen).verdict == "right":
                break
        replacing = _replacing(running, places)
    text = as_text(tidied(recorded, replacing, case.env))
    if told := [*strange_paths(text), *re.findall(re.escape(platform.node()), text)]:
        raise RuntimeError(f"{case.name} tells of this machine: {told[0]}")
    if len(text.encode()) > _MOST_BYTES:
        raise RuntimeError(f"{case.name} has {len(text)} bytes")
    return text


def _files(workspace: Path) -> dict[str, str]:
    return {
        f"{WORKSPACE}/{path.relative_to(workspace)}": path.read_text()
        for path in sorted(workspace.rglob("*.py"))
        if path.stat().st_size < 20_000
    }


def _replacing(running: RunningCase, places: Places) -> Mapping[str, str]:
    ours = "/venv/lib/python3.11/site-packages/milkweed"
    texts = {
        str(running.workspace): WORKSPACE,
        sys.prefix: "/venv",
        os.path.realpath(sys.base_prefix): "/usr/local",
        sys.base_prefix: "/usr/local",
        str(Path(milkweed.__file__).resolve().parent): ours,
        str(Path(milkweed.runtime.__file__).resolve().parent): f"{ours}/runtime",
        str(places.state): "/state",
        str(places.runtime): "/runtime",
        running.mesh.id: "mesh-1",
        running.run.run: "run-1",
        platform.node(): "node-0",
    }
    return {text: stands_for for text, stands_for in texts.items() if text}


async def main(names: list[str]) -> int:
    os.environ["MILKWEED_WARM_MODULES"] = ""
    RECORDED.mkdir(exist_ok=True)
    failed = 0
    for name in names or CHOSEN:
        case = find(name)
        with open_places() as places:
            async with open_real_meshes(places) as meshes:
                try:
                    text = await record_case(case, meshes, places)
                except (RuntimeError, TimeoutError) as error:
                    print(f"{name}: {error}", file=sys.stderr, flush=True)
                    failed += 1
                    continue
        again = judged(case, await recorded_case(load(text)))
        print(f"{name}: {len(text)} bytes, {again}", flush=True)
        if again == Judged("right"):
            (RECORDED / f"{name.replace('/', '-')}.json").write_text(text)
        else:
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1:]))
