"""What is kept of a run that stands still."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest import mock

from milkweed.runtime.records import Frame, ProcessStacks, ThreadStack
from milkweed.runtime.watching.evidence import StillEvidence, read_evidence, write_evidence
from milkweed.runtime.watching.machine import Sample

STACKS = (
    ProcessStacks(0, 0, 10, (ThreadStack("MainThread", (Frame("f", "/w/t\udcff.py", 3),), main=True),)),
)
EVIDENCE = StillEvidence("run-1", 50.0, 20.0, STACKS, (Sample(0, 7, cpu_s=1.5),), {0: 0.1}, {0: 12})


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert write_evidence(tmp_path, EVIDENCE)
    assert read_evidence(tmp_path) == EVIDENCE


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    assert write_evidence(tmp_path, EVIDENCE)
    with mock.patch.object(os, "fsync", side_effect=OSError(errno.ENOSPC, "full")):
        assert not write_evidence(tmp_path, StillEvidence("run-2", 1.0, 0.5))
    assert read_evidence(tmp_path) == EVIDENCE
    assert [path.name for path in tmp_path.iterdir()] == ["still.json"]


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert read_evidence(tmp_path) is None
    (tmp_path / "still.json").write_text('{"run": 3')
    assert read_evidence(tmp_path) is None
