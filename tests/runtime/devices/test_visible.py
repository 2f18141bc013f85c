"""Which devices a process sees, the traps in the variables, and the one that Milkweed sets."""

from __future__ import annotations

import pytest

from milkweed.runtime.devices.visible import Setting, own_device, traps, variable_of, visible

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


def test_without_variables_nothing_is_hidden_and_nothing_is_wrong() -> None:
    assert visible("nvidia", {}, 8).devices is None
    assert visible("amd", {"PATH": "/"}, 8).devices is None
    assert traps("amd", {}, 8) == ()


def test_on_nvidia_one_variable_counts_and_physical_devices_are_told() -> None:
    assert visible("nvidia", {CUDA: "2,3"}, 8).devices == (2, 3)
    assert visible("nvidia", {CUDA: "GPU-aa,GPU-bb"}, 8).devices == ("GPU-aa", "GPU-bb")
    assert visible("nvidia", {CUDA: "MIG-aa"}).devices == ("MIG-aa",)
    assert traps("nvidia", {CUDA: "2,3"}, 8) == ()


def test_on_amd_indices_are_applied_one_after_the_other() -> None:
    env = {ROCR: "4,5,6,7", HIP: "2,3"}
    found = visible("amd", env, 8)
    assert found.devices == (6, 7)
    assert "what is left is device 6,7. Keep ROCR_VISIBLE_DEVICES alone" in found.traps[0]


def test_the_same_index_in_two_variables_of_amd_leaves_no_device() -> None:
    for second in (HIP, CUDA):
        found = visible("amd", {ROCR: "1", second: "1"}, 8)
        assert found.devices == ()
        assert f"{ROCR}=1 and then {second}=1" in found.traps[0]
        assert "no device is left" in found.traps[0]


def test_all_three_of_amd_are_told_as_the_trap_that_they_are() -> None:
    found = traps("amd", {ROCR: "2,3", HIP: "2,3", CUDA: "0,1"}, 8)
    assert len(found) == 2
    assert "no device is left" in found[0]
    assert "HIP heeds the first" in found[1]


def test_two_variables_of_amd_that_hide_nothing_more_are_no_trap() -> None:
    """As Slurm and a framework set them, each counting the devices that it gives."""
    assert visible("amd", {ROCR: "4,5", HIP: "0,1"}, 8) == visible("amd", {ROCR: "4,5"}, 8)
    assert traps("amd", {ROCR: "0,1,2,3", CUDA: "0,1,2,3"}, 4) == ()


def test_hip_takes_cuda_visible_devices_where_it_has_none_of_its_own() -> None:
    assert visible("amd", {CUDA: "3"}, 8).devices == (3,)
    assert visible("amd", {HIP: "3"}, 8).devices == (3,)
    assert traps("amd", {CUDA: "3"}, 8) == ()


def test_a_name_among_names_is_one_of_them_or_nothing() -> None:
    assert visible("amd", {ROCR: "GPU-aa,GPU-bb", HIP: "1"}, 8).devices == ("GPU-bb",)
    assert visible("amd", {ROCR: "GPU-aa,GPU-bb", HIP: "GPU-cc"}, 8).devices == ()


@pytest.mark.parametrize(
    ("value", "seen", "said"),
    [
        ("", (), "hides all devices"),
        ("-1", (), "hides all devices"),
        ("0,0", (), "names a device twice"),
        ("0,x,1", (0,), "what follows 'x' is not seen"),
        ("0,9,1", (0,), "names device 9, and there are 8"),
    ],
)
def test_a_value_that_hides_more_than_it_says_is_told(value: str, seen: tuple[int, ...], said: str) -> None:
    found = visible("nvidia", {CUDA: value}, 8)
    assert found.devices == seen
    assert said in found.traps[0]


def test_variables_of_amd_mean_nothing_on_nvidia() -> None:
    assert "means nothing to NVIDIA devices" in traps("nvidia", {ROCR: "0"}, 8)[0]
    assert traps("nvidia", {ROCR: "0", CUDA: "0"}, 8) == ()


def test_exactly_one_variable_is_set_and_the_others_are_removed() -> None:
    assert variable_of("nvidia") == CUDA
    assert variable_of("amd") == ROCR
    assert own_device("nvidia", 1, {}, 8) == Setting(CUDA, "1", (), 1)
    assert own_device("amd", 1, {}, 8) == Setting(ROCR, "1", (), 1)
    assert own_device("amd", 1, {ROCR: "4,5,6,7", HIP: "2,3"}, 8) == Setting(ROCR, "7", (HIP,), 7)
    assert own_device("amd", 0, {CUDA: "3", HIP: "2"}, 8) == Setting(ROCR, "2", (CUDA, HIP), 2)
    assert own_device("amd", 1, {ROCR: "GPU-aa,GPU-bb"}, 8) == Setting(ROCR, "GPU-bb", (), "GPU-bb")


def test_a_rank_that_has_no_device_of_its_own_is_told() -> None:
    assert own_device("nvidia", 2, {CUDA: "4,5"}, 8) == (
        "local rank 2 has no device of its own: there are 2 of CUDA_VISIBLE_DEVICES=4,5"
    )
    assert own_device("nvidia", 8, {}, 8) == "local rank 8 has no device of its own: there are 8"
    assert own_device("nvidia", 1, {}) == Setting(CUDA, "1", (), None)
