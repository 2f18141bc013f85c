from __future__ import annotations

import json
from pathlib import Path

import pytest

from milkweed.runtime.codec import to_json
from milkweed.runtime.errors import NotFound
from milkweed.runtime.evidence import HostEvidence
from milkweed.runtime.keeper.reader import read_evidence_from_disk, read_from_disk
from milkweed.runtime.paths import MeshPaths
from milkweed.runtime.records import RankView


@pytest.mark.parametrize("place", [0, 1], ids=["moved", "where it was written"])
def test_what_a_run_left_is_read_wherever_it_is(tmp_path: Path, place: int) -> None:
    paths = MeshPaths(tmp_path / "state", tmp_path / "r", tmp_path / "data")
    if place == 0:
        paths.kept_output.mkdir(parents=True)
        paths.root.mkdir()
        paths.output.symlink_to(paths.kept_output)
    directory = paths.output_places("run-1", 0)[place]
    directory.mkdir(parents=True)
    (directory / "rank-0.out").write_text("said")
    (directory / "evidence.json").write_text(json.dumps(to_json(HostEvidence(0, error="kept"))))
    (piece,) = read_from_disk(paths, "run-1", [RankView(0, 0)], {}, None, 100)
    assert piece.data == b"said"
    kept, none = read_evidence_from_disk(paths, "run-1", [0, 1])
    assert kept.error == "kept"
    assert none.error == "nothing was kept of it on this host"


def test_a_rank_that_was_never_started_has_an_empty_output(tmp_path: Path) -> None:
    paths = MeshPaths(tmp_path / "state", tmp_path / "r", tmp_path / "data")
    (piece,) = read_from_disk(paths, "run-1", [RankView(0, 0, ended_at=1.0)], {}, None, 100)
    assert (piece.data, piece.ended) == (b"", True)
    with pytest.raises(NotFound):
        read_from_disk(paths, "run-1", [RankView(0, 0, started_at=1.0, ended_at=2.0)], {}, None, 100)
