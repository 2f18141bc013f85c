from __future__ import annotations

import os
import time
from pathlib import Path

from milkweed.runtime.retention import KEEP_BYTES, KEEP_S, Kept, forget_old, to_forget

DAY = 24 * 3600.0


def test_what_is_old_goes_and_what_is_young_stays_whatever_its_size() -> None:
    young, old = Kept(Path("young"), 3 * KEEP_BYTES, 60.0), Kept(Path("old"), 1, KEEP_S + 1)
    assert to_forget([young, old]) == [Path("old")]


def test_over_the_size_the_oldest_goes_first() -> None:
    kept = [Kept(Path(str(days)), KEEP_BYTES // 2, days * DAY) for days in (2, 5, 3, 4)]
    assert to_forget(kept) == [Path("4"), Path("5")]


def test_only_directories_of_old_meshes_are_removed(tmp_path: Path) -> None:
    for name, age in (("old", 30 * DAY), ("new", 0.0)):
        (tmp_path / name / "hosts").mkdir(parents=True)
        log = tmp_path / name / "keeper.log"
        log.write_text("released")
        os.utime(log, (time.time() - age,) * 2)
    forget_old([tmp_path / "old", tmp_path / "new", tmp_path / "never was"])
    assert os.listdir(tmp_path) == ["new"]
