from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.mounts.manifest import DIRECTORY, FILE, Entry
from milkweed.runtime.mounts.versions import Ledger, version_of

_SECOND = 1_000_000_000


def _file(version: int, mtime_ns: int, size: int = 10) -> Entry:
    return Entry(FILE, 0o644, size, mtime_ns, version)


# What happens to one path: another mtime and size with a new version, the same version again, a removal, a
# new life.
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 4 * _SECOND), st.integers(0, 3)),
        st.tuples(st.just("same"), st.just(0), st.just(0)),
        st.tuples(st.just("remove"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@given(_steps)
def test_two_versions_of_a_path_never_share_second_and_size_and_seconds_only_grow(
    steps: list[tuple[str, int, int]],
) -> None:
    ledger, shown, last, version = Ledger(), None, -1, 0
    pairs: set[tuple[int, int]] = set()
    for step, mtime_ns, size in steps:
        if step == "write":
            version += 1
            shown = ledger.present(b"a.py", shown, _file(version, mtime_ns, size))
            assert (shown.version, shown.size) == (version, size)
            second = shown.mtime_ns // _SECOND
            assert second >= last
            assert (second, size) not in pairs
            pairs.add((second, size))
            last = second
        elif step == "same" and shown is not None:
            assert ledger.present(b"a.py", shown, _file(shown.version, 17, shown.size)) == shown
        elif step == "remove" and shown is not None:
            ledger.removed(b"a.py", shown)
            shown = None
        elif step == "restart":
            now = max(last, 0) * _SECOND  # the files were written just now
            ledger = Ledger(ledger.to_keep([(b"a.py", shown)] if shown is not None else [], now))
            if shown is not None:
                tree = {b"": {b"a.py": _file(shown.version, 17, shown.size)}}
                ledger.present_all(tree)
                assert tree[b""][b"a.py"] == shown


def test_a_file_that_is_written_in_steps_keeps_the_mtime_that_its_bytecode_names() -> None:
    ledger = Ledger()
    created = ledger.present(b"a.py", None, _file(1, 5 * _SECOND + 1, 0))
    written = ledger.present(b"a.py", created, _file(2, 5 * _SECOND + 7, 20))
    assert written.mtime_ns == 5 * _SECOND + 7
    again = ledger.present(b"a.py", written, _file(3, 5 * _SECOND + 9, 20))
    assert again.mtime_ns == 6 * _SECOND + 9


def test_an_mtime_that_is_right_is_left_alone() -> None:
    ledger = Ledger()
    first = ledger.present(b"a", None, _file(1, 5 * _SECOND + 3))
    assert first.mtime_ns == 5 * _SECOND + 3
    assert ledger.present(b"a", first, _file(2, 6 * _SECOND + 1)).mtime_ns == 6 * _SECOND + 1
    assert ledger.present(b"a", first, _file(2, 5 * _SECOND + 9)).mtime_ns == 6 * _SECOND + 9
    folder = Entry(DIRECTORY, 0o755, 0, 1, 0)
    assert ledger.present(b"d", folder, folder._replace(mtime_ns=2)).mtime_ns == 2


def test_files_that_are_old_are_not_kept_over_a_restart() -> None:
    ledger = Ledger()
    now = 100 * _SECOND
    shown = [(b"old", _file(1, 50 * _SECOND)), (b"new", _file(2, now))]
    assert ledger.to_keep(shown, now) == {b"new": (2, now)}


def test_a_version_is_the_stat_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    first = version_of(os.stat(path))
    assert version_of(os.stat(path)) == first
    assert version_of(os.stat(path), salt=1) != first
    times = (os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns)
    path.write_bytes(b"two")
    os.utime(path, ns=times)
    assert version_of(os.stat(path)) != first
    (tmp_path / "directory").mkdir()
    moved = path.rename(tmp_path / "directory" / "a")
    inside = version_of(os.stat(moved))
    (tmp_path / "directory").rename(tmp_path / "elsewhere")
    assert version_of(os.stat(tmp_path / "elsewhere" / "a")) == inside


def test_versions_of_many_files_differ() -> None:
    stats = [
        os.stat_result((0o100644, inode, 3, 1, 0, 0, size, 0, 0, 0))
        for inode in range(1000)
        for size in range(50)
    ]
    assert len({version_of(found) for found in stats}) == len(stats)


def test_all_that_came_to_be_shown_is_told_once() -> None:
    ledger = Ledger()
    first = ledger.present(b"a", None, _file(1, 5 * _SECOND))
    second = ledger.present(b"a", first, _file(2, 5 * _SECOND))
    other = ledger.present(b"b", None, _file(3, 7 * _SECOND))
    assert ledger.present(b"b", other, other) == other
    assert ledger.take_news() == {b"a": (2, 6 * _SECOND), b"b": (3, 7 * _SECOND)}
    assert ledger.take_news() == {}
    ledger.removed(b"a", second)
    assert ledger.take_news() == {b"a": (2, 6 * _SECOND)}
