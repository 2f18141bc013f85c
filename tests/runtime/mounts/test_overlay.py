"""Which names a host sees, and which of them clash: without a file system."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from milkweed.runtime.mounts.manifest import DIRECTORY, FILE, Entry, Manifest
from milkweed.runtime.mounts.overlay import NOTHING, WRITTEN, Overlay, aside_names, base_of, is_within
from milkweed.runtime.mounts.overlay_log import (
    CLASHED,
    FORGOTTEN,
    OVER,
    REMOVED,
    TOLD,
    OverlayLog,
    Record,
)

_FILE = Entry(FILE, 0o644, 3, 5, 7)
_FOLDER = Entry(DIRECTORY, 0o755, 0, 5, 0)


def _overlay() -> Overlay:
    manifest = Manifest()
    for path, entry in ((b"d", _FOLDER), (b"d/x", _FILE), (b"d/y", _FILE), (b"f", _FILE)):
        manifest.put(path, entry)
    return Overlay(manifest)


def _clashes(overlay: Overlay, *paths: bytes) -> list[tuple[bytes, str]]:
    return [(clash.path, clash.what) for clash in overlay.clashes(paths)]


def test_names_are_those_of_the_client_but_for_what_the_host_did() -> None:
    overlay = _overlay()
    assert overlay.names(b"d") == [b"x", b"y"]
    overlay.set_removed(b"d/x", overlay.base(b"d/x"))
    overlay.set_written(b"d/own", FILE, NOTHING)
    overlay.set_written(b"d/y", FILE, overlay.base(b"d/y"))
    assert overlay.names(b"d") == [b"y", b"own"]
    assert overlay.at(b"d", b"x") is None
    assert (entry := overlay.entry(b"d/y")) is not None
    assert entry.version == WRITTEN
    assert overlay.entry(b"f") == _FILE
    overlay.forget(b"d/x")
    assert overlay.at(b"d", b"x") == _FILE


def test_what_the_host_removes_of_its_own_leaves_no_trace() -> None:
    overlay = _overlay()
    overlay.set_written(b"own", FILE, NOTHING)
    overlay.set_removed(b"own", overlay.base(b"own"))
    assert overlay.known() == []


def test_a_base_stays_while_a_name_is_written_removed_and_written() -> None:
    overlay = _overlay()
    overlay.set_written(b"f", FILE, overlay.base(b"f"))
    overlay.set_removed(b"f", overlay.base(b"f"))
    overlay.set_written(b"f", DIRECTORY, overlay.base(b"f"))
    assert overlay.base(b"f") == base_of(_FILE) == 7
    assert _clashes(overlay, b"f") == []
    overlay.manifest.put(b"f", _FILE._replace(version=8))
    assert _clashes(overlay, b"f") == [(b"f", "aside")]


def test_the_client_wins_over_what_was_written_and_brings_back_what_was_removed() -> None:
    overlay = _overlay()
    overlay.set_written(b"f", FILE, 7)
    overlay.set_written(b"made", FILE, NOTHING)
    overlay.set_removed(b"d/x", 7)
    overlay.set_removed(b"d/y", 7)
    assert overlay.clashes(overlay.known()) == []
    for path in (b"f", b"made", b"d/x"):
        overlay.manifest.put(path, _FILE._replace(version=9))
    overlay.manifest.remove(b"d/y")
    assert _clashes(overlay, b"f", b"made", b"d/x", b"d/y") == [
        (b"d/x", "back"),
        (b"d/y", "forget"),
        (b"f", "aside"),
        (b"made", "aside"),
    ]


def test_something_new_in_a_folder_that_the_host_removed_or_replaced_shows_the_folder() -> None:
    overlay = _overlay()
    for path in (b"d/x", b"d/y", b"d"):
        overlay.set_removed(path, overlay.base(path))
    overlay.manifest.put(b"d", _FOLDER._replace(mtime_ns=6))
    assert _clashes(overlay, b"d") == []
    overlay.manifest.put(b"d/new", _FILE)
    assert _clashes(overlay, b"d", b"d/new") == [(b"d", "reopen")]
    assert overlay.clashes(overlay.known()) == overlay.clashes([b"d/new"])
    overlay.set_written(b"d", FILE, overlay.base(b"d"))
    assert _clashes(overlay, b"d/new") == [(b"d", "aside")]


def test_folders_merge_and_are_the_hosts_own_when_the_client_has_them_no_more() -> None:
    overlay = _overlay()
    overlay.set_written(b"made", DIRECTORY, NOTHING)
    overlay.set_written(b"d", DIRECTORY, overlay.base(b"d"))
    assert not overlay.has_own_below(b"d")
    overlay.set_written(b"d/own", FILE, NOTHING)
    assert overlay.has_own_below(b"d")
    overlay.manifest.put(b"made", _FOLDER)
    overlay.manifest.remove(b"d")
    assert _clashes(overlay, b"d", b"made") == [(b"made", "merge"), (b"d", "orphan")]


def test_a_rename_takes_along_what_is_below_and_stands_over_what_is_there() -> None:
    overlay = _overlay()
    for path, kind in ((b"d", DIRECTORY), (b"d/x", FILE)):
        overlay.set_written(path, kind, overlay.base(path))
    overlay.set_removed(b"f", 7)
    moving = overlay.moving(b"d", b"f")
    assert [(old, new, one.base, base) for old, new, one, base in moving] == [
        (b"d", b"f", base_of(_FOLDER), 7),
        (b"d/x", b"f/x", 7, NOTHING),
    ]


def test_names_for_what_goes_aside_are_never_too_long() -> None:
    assert list(islice(aside_names(b"a"), 3)) == [b"a.host-copy", b"a.host-copy-2", b"a.host-copy-3"]
    assert [len(name) for name in islice(aside_names(b"x" * 255), 12)] == [255] * 12
    assert is_within(b"a/b", [b"a"])
    assert not is_within(b"ab", [b"a"])


def test_a_log_is_read_as_it_was_written_up_to_where_a_kill_cut_it(tmp_path: Path) -> None:
    log = OverlayLog(tmp_path / "log")
    log.add([Record(OVER, b"a", 5), Record(REMOVED, b"b\nc", -1), Record(CLASHED, b"k", kept=b"k.host-copy")])
    log.add([Record(REMOVED, b"a", 5), Record(OVER, b"d", 6), Record(FORGOTTEN, b"e")])
    log.close()
    whole = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(whole[:-1])
    log = OverlayLog(tmp_path / "log")
    known = log.read()
    assert (known.over, known.removed) == ({b"d": 6}, {b"a": 5, b"b\nc": -1})
    assert known.untold == [(b"k", b"k.host-copy")]
    log.add([Record(TOLD), Record(FORGOTTEN, b"a")])
    log.close()
    again = OverlayLog(tmp_path / "log").read()
    assert (again.removed, again.untold) == ({b"b\nc": -1}, [])
    assert known.base(b"d") == 6
    assert known.base(b"new") == NOTHING


def test_a_log_is_made_short(tmp_path: Path) -> None:
    log = OverlayLog(tmp_path / "log")
    for number in range(5_000):
        log.add([Record(REMOVED, b"name-%d" % (number % 3), number)])
    kept = [Record(REMOVED, b"name-%d" % number, number) for number in range(3)]
    log.compact(kept)
    assert (tmp_path / "log").stat().st_size < 200
    log.add([Record(FORGOTTEN, b"name-0")])
    assert log.read().removed == {b"name-1": 1, b"name-2": 2}


def test_what_there_is_no_room_for_is_not_noted_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = OverlayLog(tmp_path / "log")
    log.add([Record(REMOVED, b"first", 1)])
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr("milkweed.runtime.mounts.overlay_log.os.write", lambda fd, data: write(fd, data[:5]))
        with pytest.raises(OSError, match="no room"):
            log.add([Record(REMOVED, b"second", 2)])
    log.add([Record(REMOVED, b"third", 3)])
    assert log.read().removed == {b"first": 1, b"third": 3}
    log.close()


def test_what_is_known_below_is_found_over_gaps_and_forgotten_with_its_names() -> None:
    overlay = _overlay()
    for path in (b"a/b/c/x", b"a/b/y", b"ab/z"):
        overlay.set_removed(path, 7)
    assert overlay.known_below(b"a") == [b"a/b/y", b"a/b/c/x"]
    assert overlay.known_below(b"a/b/c") == [b"a/b/c/x"]
    assert overlay.known_below(b"a/b/c/x") == []
    overlay.forget(b"a/b/y")
    assert overlay.known_below(b"a") == [b"a/b/c/x"]
    overlay.forget(b"a/b/c/x")
    assert overlay.known_below(b"") == [b"ab/z"]
    overlay.set_written(b"a/b/y", FILE, NOTHING)
    assert overlay.known_below(b"") == [b"ab/z", b"a/b/y"]
