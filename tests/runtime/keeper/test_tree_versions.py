"""What a keeper leaves of a directory's versions for the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from milkweed.runtime.keeper.tree_versions import VersionsLog, kept_versions

VERSIONS = {b"a/b.py": (2**63 - 1, 1_700_000_000_000_000_001), "ä".encode(): (1, 2), b"\xff\xfe\n": (3, 4)}


def test_versions_of_names_in_every_encoding_are_kept(tmp_path: Path) -> None:
    log = VersionsLog(tmp_path / "versions")
    assert log.is_long
    log.begin(VERSIONS)
    assert not log.is_long
    assert kept_versions(tmp_path / "versions") == VERSIONS


def test_what_was_added_later_holds(tmp_path: Path) -> None:
    log = VersionsLog(tmp_path / "versions")
    log.begin(VERSIONS)
    log.add({b"a/b.py": (5, 6)})
    log.add({b"new": (7, 8)})
    log.add({})
    assert kept_versions(tmp_path / "versions") == {**VERSIONS, b"a/b.py": (5, 6), b"new": (7, 8)}


def test_a_line_that_a_kill_has_cut_takes_no_other_with_it(tmp_path: Path) -> None:
    log = VersionsLog(tmp_path / "versions")
    log.begin(VERSIONS)
    log.add({b"new": (7, 8)})
    whole = (tmp_path / "versions").read_bytes()
    (tmp_path / "versions").write_bytes(whole[:-5])
    assert kept_versions(tmp_path / "versions") == VERSIONS


def test_a_log_that_has_grown_begins_anew(tmp_path: Path) -> None:
    log = VersionsLog(tmp_path / "versions")
    log.begin({})
    for number in range(100):
        log.add({b"x" * 20_000: (number, number)})
    assert log.is_long
    log.begin(VERSIONS)
    assert kept_versions(tmp_path / "versions") == VERSIONS


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"a": 1}', '{"a": [1]}', '{"\u20ac": [1, 2]}', '{"a": ["b", 1]}']
)
def test_what_cannot_be_read_is_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "versions").write_text(text)
    assert kept_versions(tmp_path / "versions") == {}
    assert kept_versions(tmp_path / "absent") == {}


def test_a_disk_that_takes_nothing_stops_nobody(tmp_path: Path) -> None:
    log = VersionsLog(tmp_path / "no directory" / "versions")
    log.begin(VERSIONS)
    log.add(VERSIONS)
