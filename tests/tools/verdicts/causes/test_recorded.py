"""Evidence of real runs, recorded (`python -m tests.diagnosis.record`): judged without any process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milkweed.tools.diagnosis import describe
from milkweed.tools.verdicts.causes import diagnose
from tests.diagnosis.cases import find
from tests.diagnosis.judging import FIRST_SIX, Judged, Told, judge
from tests.diagnosis.recording import as_text, load, recorded_case, strange_paths

pytestmark = pytest.mark.anyio

_FILES = sorted((Path(__file__).parents[3] / "diagnosis/recorded").glob("*.json"))
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD")


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
async def test_what_was_recorded_of_a_run_tells_its_cause(path: Path) -> None:
    recorded = load(path.read_text())
    run = await recorded_case(recorded)
    told = Told(describe(run, diagnose(run)).content(), 0.0)
    assert judge(find(recorded.case), told) == Judged("right"), told.text


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_recording_is_small_and_tells_nothing_of_the_machine(path: Path) -> None:
    text = path.read_text()
    assert len(text.encode()) < 60_000
    assert strange_paths(text) == []
    assert _SECRET.search(text) is None
    assert as_text(load(text)) == text


def test_the_first_six_kinds_are_among_them() -> None:
    kinds = {path.stem.partition("-")[0] for path in _FILES}
    assert set(FIRST_SIX) <= kinds
    assert len(kinds) >= 12


def test_a_path_of_the_machine_in_a_recording_is_found() -> None:
    text = (
        '{"file":"/project/a.py"},{"file":"/elsewhere/a.py"} File \\"/venv/lib/b.py\\" File \\"/other/b.py\\"'
    )
    assert strange_paths(text) == ["/elsewhere/a.py", "/other/b.py"]
