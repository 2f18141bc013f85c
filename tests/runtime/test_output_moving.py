from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from milkweed.runtime.output import read_output
from milkweed.runtime.output_moving import led_to, move_output


@pytest.fixture(params=["same", "another"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """On this file system, or not."""
    if request.param == "same":
        yield tmp_path / "data" / "output" / "run-1" / "0"
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        if os.stat(other).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("one file system")
        yield Path(other, "output", "run-1", "0")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "hosts" / "0" / "runs" / "run-1"
    directory.mkdir(mode=0o700, parents=True)
    (directory / "plan.json").write_text("{}")
    (directory / "rank-0.out").write_text("said\n")
    with (directory / "rank-1.out").open("wb") as sparse:
        sparse.seek(1 << 20)
        sparse.write(b"end")
    script = directory / "script"
    script.write_text("#!/bin/sh")
    script.chmod(0o700)
    return directory


def test_it_is_there_whole_and_nowhere_else(source: Path, target: Path) -> None:
    move_output(source, target)
    assert not source.exists()
    assert sorted(os.listdir(target)) == ["plan.json", "rank-0.out", "rank-1.out", "script"]
    assert os.listdir(target.parent) == ["0"]
    assert read_output(target, "rank-0", 0, max_bytes=9, ended=True).data == b"said\n"
    sparse = (target / "rank-1.out").stat()
    assert sparse.st_size == (1 << 20) + 3
    assert sparse.st_blocks * 512 < 1 << 19
    assert stat.S_IMODE((target / "script").stat().st_mode) == 0o700
    assert stat.S_IMODE(target.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize("target", ["another"], indirect=True)
def test_a_door_of_a_process_that_has_ended_keeps_nothing_back(source: Path, target: Path) -> None:
    os.mkfifo(source / "rank-0.ask.77")
    move_output(source, target)
    assert not source.exists()
    assert len(os.listdir(target)) == 4


def test_what_a_killed_try_left_is_gone_on_with(source: Path, target: Path) -> None:
    part = target.with_name(".0.part")
    part.mkdir(parents=True)
    (part / "rank-0.out").write_text("sa")
    move_output(source, target)
    assert (target / "rank-0.out").read_text() == "said\n"
    assert os.listdir(target.parent) == ["0"]
    source.mkdir()  # it was killed before all of this was removed
    (source / "rank-0.out").write_text("said\n")
    move_output(source, target)
    assert not source.exists()
    assert (target / "rank-0.out").read_text() == "said\n"


@pytest.mark.parametrize("target", ["another"], indirect=True)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_what_cannot_be_copied_stays_whole_and_leaves_nothing(
    source: Path, target: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: int, target: int, offset: int, count: int) -> int:
        raise OSError(number, "it fails")

    monkeypatch.setattr("os.sendfile", full)
    with pytest.raises(OSError, match="it fails"):
        move_output(source, target)
    assert (source / "rank-0.out").read_text() == "said\n"
    assert os.listdir(target.parent) == []


@pytest.mark.parametrize("target", ["another"], indirect=True)
def test_what_is_no_file_keeps_all_of_a_run_where_it_is(source: Path, target: Path) -> None:
    (source / "rank-2.out").symlink_to("/dev/null")
    with pytest.raises(OSError, match="is no file"):
        move_output(source, target)
    assert len(os.listdir(source)) == 5


def test_a_link_leads_where_it_led_before(tmp_path: Path) -> None:
    link = tmp_path / "link"
    assert led_to(link, tmp_path / "a") == tmp_path / "a"
    assert led_to(link, tmp_path / "b") == tmp_path / "a"
    with pytest.raises(OSError, match="No such file"):
        led_to(tmp_path / "nowhere" / "link", tmp_path)
