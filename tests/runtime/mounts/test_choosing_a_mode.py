from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from milkweed.runtime.mounts import Facts, decide, in_the_way, probe

_ABLE = Facts(
    has_device=True,
    device_error="",
    helper="/usr/bin/fusermount3",
    may_mount=True,
    binding_error="",
    in_container=False,
)
_UNABLE = replace(_ABLE, has_device=False)


def test_a_host_that_does_not_see_the_directory_mounts_it() -> None:
    assert decide("auto", _ABLE).mode == "mount"
    assert decide("mount", _ABLE).mode == "mount"


def test_without_fuse_it_is_copied_and_said_why() -> None:
    verdict = decide("auto", _UNABLE)
    assert verdict.mode == "copy"
    assert "/dev/fuse" in verdict.why
    assert verdict.mends == in_the_way(_UNABLE)
    assert decide("copy", _ABLE).mode == "copy"


def test_what_was_asked_for_and_cannot_be_is_no_mode_with_the_mend() -> None:
    assert decide("mount", _UNABLE).mode is None
    assert decide("mount", _UNABLE).mends
    assert decide("shared", _ABLE).mode is None
    assert "token" in decide("shared", _ABLE).why


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


def test_a_binding_that_cannot_be_imported_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milkweed.runtime.mounts.probing.TRY_BINDING", (sys.executable, "-c", "import gone"))
    assert "No module named 'gone'" in probe().binding_error
    assert probe("a reason").binding_error == "a reason"
