from __future__ import annotations

import pytest

from milkweed.runtime.holdings import HeldFile, Place, is_checkpoint, kept_by, matters


def held(path: str, size: int = 10, place: Place = "workspace") -> HeldFile:
    return HeldFile(path, path, size, size, 0, place)


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/w/model.pt", True),
        ("/w/out/MODEL.SafeTensors", True),
        ("/w/checkpoints/step-10/meta", True),
        ("/w/run-checkpoint-500/optimizer", True),
        ("/w/ckpt_3/x.bin", True),
        ("/w/checkpoints", False),
        ("/w/train.log", False),
        ("/w/mycheckpointing/x", False),
        ("/w/__pycache__/checkpoint.pt", False),
        ("/w/.venv/lib/python3.11/site-packages/distutils-precedence.pth", False),
        ("/w/.venv/lib/python3.11/site-packages/package/weights.pth", True),
    ],
)
def test_checkpoints_are_known_by_their_suffix_or_a_folder(path: str, is_one: bool) -> None:
    assert is_checkpoint(held(path)) is is_one


def test_what_is_empty_or_temporary_is_no_checkpoint() -> None:
    assert not is_checkpoint(held("/w/model.pt", 0))
    assert not is_checkpoint(held("/tmp/model.pt", place="temporary"))


def test_checkpoints_come_first_then_what_is_large() -> None:
    files = [held("/w/a.log", 5), held("/w/b.pt", 1), held("/w/c.log", 9), held("/w/d.pt", 2)]
    assert [one.path for one in matters(files)] == ["/w/d.pt", "/w/b.pt", "/w/c.log", "/w/a.log"]


@pytest.mark.parametrize(
    ("pattern", "path", "is_kept"),
    [
        ("/w/checkpoints/**", "/w/checkpoints/a/b.pt", True),
        ("/w/checkpoints/**", "/w/checkpoints2/b.pt", False),
        ("/w/checkpoints", "/w/checkpoints/a/b.pt", True),
        ("/w/*.pt", "/w/a.pt", True),
        ("/w/*.pt", "/w/sub/a.pt", False),
        ("/w/**/*.pt", "/w/a.pt", True),
        ("/w/**/*.pt", "/w/x/y/a.pt", True),
        ("/w/**/logs/*", "/w/x/logs/y/z", True),
        ("/w/?.pt", "/w/a/pt", False),
        ("/w/[ab].pt", "/w/b.pt", True),
        ("/w/./a//b", "/w/a/b", True),
    ],
)
def test_globs_of_what_is_kept(pattern: str, path: str, is_kept: bool) -> None:
    assert kept_by(["/elsewhere", pattern], path) is is_kept
