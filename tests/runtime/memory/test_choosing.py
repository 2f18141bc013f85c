from __future__ import annotations

from milkweed.runtime.memory.choosing import NAMES, Transport, by_preference, smoothed


def test_ways_of_the_same_means_are_measured_once_and_then_the_fastest_is_taken() -> None:
    both = ("shared", "process_vm")
    assert by_preference(both, {}) == ["shared", "process_vm"]
    assert by_preference(both, {"shared": 5e9}) == ["process_vm", "shared"]
    assert by_preference(both, {"shared": 5e9, "process_vm": 4e9}) == ["shared", "process_vm"]
    assert by_preference(both, {"shared": 5e9, "process_vm": 6e9}) == ["process_vm", "shared"]


def test_a_way_that_needs_the_owners_help_is_not_tried_for_its_speed() -> None:
    speeds = {"unix": 9e9, "tcp": 99e9, "process_vm": 1e9}
    assert by_preference(("tcp", "unix", "process_vm"), speeds) == ["process_vm", "unix", "tcp"]
    assert by_preference(NAMES, {}) == list(NAMES)


def test_one_slow_transfer_does_not_overturn_a_speed() -> None:
    assert smoothed(None, 5.0) == 5.0
    assert 3.0 < smoothed(5.0, 0.0) < 5.0


def test_a_transport_says_its_speed_and_what_was_passed_over() -> None:
    assert repr(Transport("unix", 1.5, {"process_vm": "forbidden"})) == (
        "<unix, 1.50 GB/s; not process_vm: forbidden>"
    )
    assert str(Transport("tcp", None, {})) == "tcp"
