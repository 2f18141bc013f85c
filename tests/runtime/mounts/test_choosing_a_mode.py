from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from milkweed.runtime.mounts import Facts, decide, in_the_way, left_in, probe, sees

_ABLE = Facts(
    has_device=True,
    device_error="",
    helper="/usr/bin/fusermount3",
    may_mount=True,
    binding_error="",
    in_container=False,
)
_UNABLE = replace(_ABLE, has_device=False)


def test_a_directory_that_a_host_sees_itself_is_shared_unless_the_host_is_isolated() -> None:
    seeing = replace(_ABLE, sees_directory=True)
    assert decide("auto", seeing, is_isolated=False).mode == "shared"
    assert decide("auto", seeing, is_isolated=True).mode == "mount"
    assert decide("auto", _ABLE, is_isolated=False).mode == "mount"
    assert decide("mount", seeing, is_isolated=False).mode == "mount"


def test_without_fuse_it_is_copied_and_said_why() -> None:
    verdict = decide("auto", _UNABLE, is_isolated=True)
    assert verdict.mode == "copy"
    assert "/dev/fuse" in verdict.why
    assert verdict.mends == in_the_way(_UNABLE)
    assert decide("copy", _ABLE, is_isolated=True).mode == "copy"


def test_what_was_asked_for_and_cannot_be_is_no_mode_with_the_mend() -> None:
    assert decide("mount", _UNABLE, is_isolated=False).mode is None
    assert decide("mount", _UNABLE, is_isolated=False).mends
    assert decide("shared", _ABLE, is_isolated=False).mode is None
    assert "token" in decide("shared", _ABLE, is_isolated=False).why


@pytest.mark.parametrize(
    ("facts", "problem", "mend"),
    [
        (replace(_ABLE, has_device=False), "no /dev/fuse", "modprobe fuse"),
        (replace(_ABLE, has_device=False, in_container=True), "no /dev/fuse", "--device /dev/fuse"),
        (replace(_ABLE, device_error="Permission denied"), "Permission denied", "chmod"),
        (replace(_ABLE, device_error="No such device"), "No such device", "modprobe"),
        (replace(_ABLE, helper="", may_mount=False), "fusermount3", "apt-get install fuse3"),
        (replace(_ABLE, binding_error="No module named 'pyfuse3'"), "pyfuse3", "libfuse3"),
    ],
)
def test_each_thing_that_is_missing_has_its_mend(facts: Facts, problem: str, mend: str) -> None:
    (found,) = in_the_way(facts)
    assert problem in found.problem
    assert mend in found.mend


def test_nothing_is_in_the_way_where_either_the_helper_or_the_right_is_there() -> None:
    assert in_the_way(_ABLE) == ()
    assert in_the_way(replace(_ABLE, helper="")) == ()
    assert in_the_way(replace(_ABLE, may_mount=False)) == ()


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
        assert probe(mine, token).sees_directory
    assert not sees(mine, token)
    assert list(mine.iterdir()) == []


def test_a_binding_that_cannot_be_imported_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert probe().binding_error
