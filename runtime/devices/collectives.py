"""Collective libraries and the variables of each vendor, by name: a table for verdicts. Pure.

RCCL is AMD's library in NCCL's place: torch calls its backend `nccl` on both, and RCCL reads the NCCL_*
variables under their own names; RCCL_* are its own in addition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .records import Vendor

__all__ = ["TABLE", "Names", "foreign", "names_of", "selected"]


@dataclass(frozen=True, slots=True)
class Names:
    """How things are called on devices of one vendor. `debug` sets what the library tells of itself."""

    library: str
    backend: str
    debug: str
    prefixes: tuple[str, ...]
    tool: str
    memory: str
    launch_blocking: str
    memory_config: str


TABLE: Mapping[Vendor, Names] = {
    "nvidia": Names(
        library="NCCL",
        backend="nccl",
        debug="NCCL_DEBUG=INFO",
        prefixes=("NCCL_", "CUDA_"),
        tool="nvidia-smi",
        memory="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        launch_blocking="CUDA_LAUNCH_BLOCKING=1",
        memory_config="PYTORCH_CUDA_ALLOC_CONF",
    ),
    "amd": Names(
        library="RCCL",
        backend="nccl",
        debug="NCCL_DEBUG=INFO",
        prefixes=("NCCL_", "RCCL_", "HSA_", "HIP_", "ROCR_", "GPU_", "AMD_", "MIOPEN_"),
        tool="amd-smi",
        memory="PYTORCH_HIP_ALLOC_CONF=expandable_segments:True",
        launch_blocking="AMD_SERIALIZE_KERNEL=3",
        memory_config="PYTORCH_HIP_ALLOC_CONF",
    ),
}

# Of any vendor: what makes ranks that have it differ from ranks that do not.
_COMMON = (
    "TORCH_NCCL_",
    "TORCH_FR_",
    "PYTORCH_",
    "GLOO_",
    "UCX_",
    "OMP_NUM_THREADS",
    "TORCH_DISTRIBUTED_DEBUG",
)
# What is set on machines of the one vendor and does nothing on those of the other.
_ONLY_AMD = (
    "HSA_",
    "HIP_",
    "ROCR_",
    "RCCL_",
    "GPU_MAX_HW_QUEUES",
    "AMD_",
    "MIOPEN_",
    "PYTORCH_HIP_",
    "GPU_DEVICE_",
)
_ONLY_NVIDIA = (
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MODULE_LOADING",
    "NVIDIA_",
    "CUBLAS_",
)


def names_of(vendors: Iterable[Vendor]) -> Names | None:
    """Of the first; None where there is no device, and gloo carries the collectives."""
    return next((TABLE[vendor] for vendor in vendors), None)


def selected(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how ranks compute and communicate, of any vendor."""
    every = (*_COMMON, *TABLE["nvidia"].prefixes, *TABLE["amd"].prefixes)
    return {name: value for name, value in sorted(env.items()) if name.startswith(every)}


def foreign(vendor: Vendor, env: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that are set and mean nothing to this vendor's devices."""
    prefixes = _ONLY_AMD if vendor == "nvidia" else _ONLY_NVIDIA
    return tuple(name for name in sorted(env) if name.startswith(prefixes))
