from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from milkweed.runtime.holdings import HeldFile, HostLayout, KeepRule, keep, survey


def write(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    return path


@pytest.fixture
def layout(tmp_path: Path) -> HostLayout:
    """A host that has written over its workspace, in a scratch folder of it and in its TMPDIR."""
    layout = HostLayout(tmp_path / "host")
    mount = layout.mount("/w")
    mount.make("/w")
    write(mount.written / "logs" / "train.log", 30)
    write(mount.scratch_folder("out/checkpoints") / "step-1" / "model.pt", 20)
    write(layout.directory / "tmp" / "cache.bin", 500)
    write(mount.cache / "not-looked-at", 900)
    return layout


def test_what_a_host_wrote_is_told_by_the_paths_that_programs_know(layout: HostLayout) -> None:
    found = survey(layout, within_s=60.0)
    assert [(one.path, one.size, one.place) for one in found.files] == [
        ("/w/out/checkpoints/step-1/model.pt", 20, "scratch"),
        (str(layout.directory / "tmp" / "cache.bin"), 500, "temporary"),
        ("/w/logs/train.log", 30, "workspace"),
    ]
    assert (found.count, found.bytes, found.more, found.is_partial) == (3, 550, 0, False)


def test_of_many_files_those_that_matter_are_named_and_all_are_counted(layout: HostLayout) -> None:
    for number in range(40):
        write(layout.mount("/w").written / f"{number}.txt", number)
    found = survey(layout, within_s=60.0, most=3)
    assert [os.path.basename(one.path) for one in found.files] == ["model.pt", "cache.bin", "39.txt"]
    assert (found.count, found.more) == (43, 40)
    assert found.bytes == 550 + sum(range(40))


def test_a_walk_without_time_says_that_it_is_not_all(layout: HostLayout) -> None:
    for number in range(600):
        write(layout.mount("/w").written / f"{number}.txt", 1)
    found = survey(layout, within_s=-1.0)
    assert found.is_partial
    assert 0 < found.count < 603


def test_links_and_special_files_are_no_files_that_are_held(layout: HostLayout) -> None:
    written = layout.mount("/w").written
    (written / "link").symlink_to("/etc/passwd")
    os.mkfifo(written / "fifo")
    assert survey(layout, within_s=60.0).count == 3


def test_a_host_that_wrote_nothing_holds_nothing(tmp_path: Path) -> None:
    assert survey(HostLayout(tmp_path / "none"), within_s=60.0).count == 0


def test_kept_files_have_their_whole_path_and_share_their_bytes(layout: HostLayout, tmp_path: Path) -> None:
    files = survey(layout, within_s=60.0).files
    kept = keep(files[:1], tmp_path / "kept")
    target = tmp_path / "kept" / "w" / "out" / "checkpoints" / "step-1" / "model.pt"
    assert (kept.files, kept.bytes, kept.failed) == (1, 20, ())
    assert os.path.samefile(target, files[0].real)
    assert keep(files[:1], tmp_path / "kept").files == 1  # a second try is no fault


def test_where_no_link_can_be_files_are_copied_with_their_holes(
    layout: HostLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparse = layout.mount("/w").written / "sparse.pt"
    with sparse.open("wb") as file:
        file.write(b"head")
        file.seek(50 * 1024 * 1024)
        file.write(b"tail")

    def no_link(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_link)
    files = survey(layout, within_s=60.0).files
    kept = keep([one for one in files if one.real == str(sparse)], tmp_path / "kept")
    assert kept.failed == ()
    target = tmp_path / "kept" / "w" / "sparse.pt"
    assert target.read_bytes() == sparse.read_bytes()
    assert target.stat().st_blocks * 512 < 1024 * 1024
    assert target.stat().st_mtime_ns == sparse.stat().st_mtime_ns


def test_what_cannot_be_kept_is_said_and_the_rest_is(layout: HostLayout, tmp_path: Path) -> None:
    files = survey(layout, within_s=60.0).files
    os.unlink(files[0].real)
    kept = keep(files, tmp_path / "kept")
    assert kept.files == 2
    assert kept.failed == (f"{files[0].path}: No such file or directory",)
    assert not list((tmp_path / "kept").rglob("*.part"))


def test_names_of_the_greatest_length_are_kept(layout: HostLayout, tmp_path: Path) -> None:
    names = ["x" * 252 + ".pt", "\u20ac" * 84 + ".pt"]
    for name in names:
        write(layout.mount("/w").written / name, 3)
    kept = keep(survey(layout, within_s=60.0).files, tmp_path / "kept")
    assert kept.failed == ()
    assert {*names} <= {path.name for path in (tmp_path / "kept" / "w").iterdir()}


def test_no_kept_file_takes_the_place_of_another(tmp_path: Path) -> None:
    files = []
    for number, path in enumerate((".a.part", "a", "b/a", "/b/a")):
        real = write(tmp_path / "disk" / str(number), 10 + number)
        files.append(HeldFile(path, str(real), 10 + number, 0, 0, "workspace"))
    kept = keep(files, tmp_path / "kept")
    assert (kept.files, kept.failed) == (4, ())
    found = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert sorted(path.stat().st_size for path in found) == [10, 11, 12, 13]


def test_what_is_kept_is_for_this_user_alone(layout: HostLayout, tmp_path: Path) -> None:
    keep(survey(layout, within_s=60.0).files, tmp_path / "data" / "mesh" / "host-0")
    made = [tmp_path / "data", *(path for path in (tmp_path / "data").rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}


def test_what_cannot_be_kept_there_is_linked_elsewhere_which_is_said(
    layout: HostLayout, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("a file where the directory would be")
    files = survey(layout, within_s=60.0).files[:1]
    kept = keep(files, tmp_path / "data" / "host-0", tmp_path / "else" / "host-0")
    target = tmp_path / "else" / "host-0" / files[0].path.lstrip("/")
    assert kept.files == 0
    assert kept.failed == (f"{files[0].path}: {tmp_path}/data is not a directory; it is in {target}",)
    assert os.path.samefile(target, files[0].real)


def test_what_was_written_while_a_scratch_folder_was_not_bound_counts_too(layout: HostLayout) -> None:
    mount = layout.mount("/w")
    write(mount.written / "out" / "checkpoints" / "step-2.pt", 7)
    write(mount.written / "out" / "checkpoints" / "step-1" / "model.pt", 9)  # which the folder began with
    found = {one.path: one.size for one in survey(layout, within_s=60.0).files if one.place != "temporary"}
    assert found == {
        "/w/out/checkpoints/step-1/model.pt": 20,
        "/w/out/checkpoints/step-2.pt": 7,
        "/w/logs/train.log": 30,
    }


def test_two_scratch_folders_may_have_the_same_file(layout: HostLayout) -> None:
    write(layout.mount("/w").scratch_folder("out/checkpoints/step-1") / "model.pt", 20)
    assert survey(layout, within_s=60.0).count == 4


def test_what_is_kept_is_neither_named_nor_counted(layout: HostLayout) -> None:
    rule = KeepRule(("/client/**/*.pt",), "/client", "/w")
    found = survey(layout, within_s=60.0, of=lambda file: not rule.keeps(file.path))
    assert [os.path.basename(one.path) for one in found.files] == ["cache.bin", "train.log"]
    assert (found.count, found.bytes) == (2, 530)


def test_a_walk_through_folders_without_files_ends_in_time_too(layout: HostLayout) -> None:
    for number in range(600):
        (layout.directory / "tmp" / str(number)).mkdir()
    assert survey(layout, within_s=-1.0).is_partial


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user's part")
def test_what_programs_closed_is_asked_about_and_opened_up_to_be_kept() -> None:
    """Of a user who is not root, who may look everywhere."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o777)
        done = subprocess.run(
            [sys.executable, "-c", CLOSES, directory],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert (done.stdout, done.stderr) == ("True 0\nFalse 2\n2 ()\n", "")


# What is needed is imported first: another user may not see where it is.
CLOSES = """
import os, pathlib, sys
from milkweed.runtime.holdings import HostLayout, keep, keeping, open_up, survey
os.setuid(65534)
layout = HostLayout(pathlib.Path(sys.argv[1], "host"))
shut = layout.directory / "tmp" / "a" / "b"
shut.mkdir(parents=True)
(shut / "x.pt").write_text("x")
(shut / "y.pt").write_text("y")
(shut / "y.pt").chmod(0)
shut.chmod(0)
found = survey(layout, 60.0)
print(found.is_partial, found.count)
open_up(layout.directory)
found = survey(layout, 60.0)
print(found.is_partial, found.count)
keeping._NO_LINK = (17,)
def no_link(*_, **__):
    raise OSError(17, "no link")
os.link = no_link
done = keep(found.files, pathlib.Path(sys.argv[1], "kept"))
print(done.files, done.failed)
"""
