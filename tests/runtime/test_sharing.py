from __future__ import annotations

import os
from pathlib import Path

import pytest

from milkweed.runtime import sharing
from milkweed.runtime.sharing import left_in, sees


def test_a_token_tells_the_same_directory_from_one_of_the_same_name(tmp_path: Path) -> None:
    mine, other, alias = tmp_path / "mine", tmp_path / "other", tmp_path / "alias"
    mine.mkdir()
    other.mkdir()
    alias.symlink_to(mine)
    with left_in(mine) as token:
        assert sees(mine, token)
        assert sees(alias, token)
        assert not sees(other, token)
        (other / token.name).write_bytes(b"another client's")
        assert not sees(other, token)
        assert not sees(tmp_path / "nothing", token)
    assert not sees(mine, token)
    assert list(mine.iterdir()) == []


def test_a_directory_that_cannot_be_written_to_is_told_by_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(sharing.os, "open", refuse)
        with left_in(mine) as token:
            assert not list(mine.iterdir())
            assert sees(mine, token)
            assert not sees(other, token)


def test_tokens_that_a_killed_process_left_are_removed(tmp_path: Path) -> None:
    old, new = tmp_path / ".milkweed-token-old", tmp_path / ".milkweed-token-new"
    for token in (old, new):
        token.write_bytes(b"")
    os.utime(old, (0, 0))
    with left_in(tmp_path):
        assert not old.exists()
    assert list(tmp_path.iterdir()) == [new]
