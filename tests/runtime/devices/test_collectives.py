"""Names of both vendors."""

from __future__ import annotations

from milkweed.runtime.devices.collectives import TABLE, foreign, names_of, selected


def test_amd_has_its_own_library_under_the_same_backend_and_variables() -> None:
    assert TABLE["amd"].library == "RCCL"
    assert TABLE["amd"].backend == TABLE["nvidia"].backend == "nccl"
    assert TABLE["amd"].debug == TABLE["nvidia"].debug == "NCCL_DEBUG=INFO"
    assert names_of([]) is None
    assert names_of(["amd", "nvidia"]) is TABLE["amd"]


def test_variables_that_change_how_ranks_compute_are_selected_and_no_secret_is() -> None:
    env = {
        "NCCL_SOCKET_IFNAME": "eth0",
        "HSA_NO_SCRATCH_RECLAIM": "1",
        "GPU_MAX_HW_QUEUES": "2",
        "PYTORCH_HIP_ALLOC_CONF": "x",
        "AWS_SECRET_ACCESS_KEY": "s",
        "HOME": "/",
    }
    assert list(selected(env)) == [
        "GPU_MAX_HW_QUEUES",
        "HSA_NO_SCRATCH_RECLAIM",
        "NCCL_SOCKET_IFNAME",
        "PYTORCH_HIP_ALLOC_CONF",
    ]


def test_variables_of_the_other_vendor_are_told() -> None:
    env = {"CUDA_LAUNCH_BLOCKING": "1", "NCCL_DEBUG": "INFO", "HSA_NO_SCRATCH_RECLAIM": "1"}
    assert foreign("amd", env) == ("CUDA_LAUNCH_BLOCKING",)
    assert foreign("nvidia", env) == ("HSA_NO_SCRATCH_RECLAIM",)
