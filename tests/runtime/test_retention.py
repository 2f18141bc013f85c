from __future__ import annotations

import os
import time
from pathlib import Path

from milkweed.runtime.paths import MeshPaths
from milkweed.runtime.retention import KEEP_BYTES, KEEP_S, Kept, forget_old, to_forget

DAY = 24 * 3600.0


def paths(at: Path) -> MeshPaths:
    return MeshPaths(at, at / "sockets", at.parent / "data" / at.name)


def test_what_is_old_goes_and_what_is_young_stays_whatever_its_size() -> None:
    young, old = Kept(paths(Path("young")), 3 * KEEP_BYTES, 60.0), Kept(paths(Path("old")), 1, KEEP_S + 1)
    assert to_forget([young, old]) == [old.mesh]


def test_over_the_size_the_oldest_goes_first() -> None:
    kept = [Kept(paths(Path(str(days))), KEEP_BYTES // 2, days * DAY) for days in (2, 5, 3, 4)]
    assert [one.root for one in to_forget(kept)] == [Path("4"), Path("5")]


def test_only_files_of_old_meshes_are_removed_and_none_that_were_to_be_kept(tmp_path: Path) -> None:
    meshes = [paths(tmp_path / name) for name in ("old", "older", "new", "never was")]
    for mesh, age in zip(meshes, (30 * DAY, 40 * DAY, 0.0), strict=False):
        (mesh.root / "hosts").mkdir(parents=True)
        (mesh.kept_output / "run-1").mkdir(parents=True)
        mesh.output.symlink_to(mesh.kept_output)
        mesh.keeper_log.write_text("released")
        os.utime(mesh.keeper_log, (time.time() - age,) * 2)
    (meshes[0].kept / "0").mkdir()
    forget_old(meshes)
    assert sorted(os.listdir(tmp_path)) == ["data", "new"]
    left = sorted(str(path.relative_to(tmp_path / "data")) for path in (tmp_path / "data").rglob("*"))
    assert left == ["new", "new/output", "new/output/run-1", "old", "old/0"]
