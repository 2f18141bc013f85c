"""A rank that is to see one device alone, on hosts whose device nodes are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from milkweed.runtime.devices.own_device import traps_here, with_own_device
from milkweed.runtime.errors import InvalidArgument


@pytest.fixture
def nvidia(tmp_path: Path) -> Path:
    for name in ("nvidiactl", "nvidia0", "nvidia1", "nvidia-uvm"):
        (tmp_path / name).touch()
    return tmp_path


def test_it_gets_the_one_variable_of_its_vendor(nvidia: Path) -> None:
    assert with_own_device({"A": "b"}, 1, dev=nvidia) == {"A": "b", "CUDA_VISIBLE_DEVICES": "1"}


def test_on_amd_no_other_variable_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "kfd").touch()
    env = {"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert with_own_device(env, 1, dev=tmp_path) == {"ROCR_VISIBLE_DEVICES": "5"}


def test_more_ranks_than_devices_are_refused(nvidia: Path) -> None:
    with pytest.raises(
        InvalidArgument, match="unsupported: own_device on host-0: local rank 2 has no device"
    ):
        with_own_device({}, 2, " on host-0", nvidia)


def test_a_host_without_devices_has_none_to_show(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no device of NVIDIA or AMD on host-0"):
        with_own_device({}, 0, " on host-0", tmp_path)


def test_traps_are_those_of_the_devices_that_are_here(nvidia: Path, tmp_path: Path) -> None:
    both = {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}
    assert "means nothing to NVIDIA" in traps_here(both, nvidia)[0]
    assert "there are 2" in traps_here({"CUDA_VISIBLE_DEVICES": "3"}, nvidia)[0]
    assert traps_here({}, nvidia) == ()
    (tmp_path / "amd").mkdir()
    assert traps_here(both, tmp_path / "amd") == ()
    (tmp_path / "amd" / "kfd").touch()
    assert "no device is left" in traps_here(both, tmp_path / "amd")[0]
