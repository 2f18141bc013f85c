"""The variables that an interpreter, and what it imports, reads once: other values need another starter.

The names were seen with CPython 3.11, numpy 2 and torch 2.13; a test looks again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["early_variables", "is_early", "sets_early"]

# HOME leads to the user's own site-packages.
_NAMES = frozenset(("GLIBC_TUNABLES", "HOME", "LANG", "LANGUAGE", "MPI_LOCALNRANKS", "USE_OPENMP"))
_PREFIXES = (
    *("ACC_", "BLIS_", "COMPILE_STROBELIGHT_", "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "FX_", "GFORTRAN_"),
    *("GOMP_", "GOTO_", "HIP_", "HSA_", "INTEL_", "I_MPI_", "KINETO_", "KMP_", "LC_", "LD_", "MALLOC_"),
    *("MIOPEN_", "MKL", "NCCL_", "NPY_", "NUMEXPR_", "NUMPY_", "OMPI_", "OMP_", "ONEDNN_", "OPENBLAS_"),
    *("OPENSSL_", "PYTHON", "PYTORCH_", "RCCL_", "ROCM_", "TORCH", "TRITON_"),
)
# Read when a device is first used, or only by a launcher's own library; often another in each rank or run.
_LATE_NAMES = frozenset(("TORCH_NCCL_ASYNC_ERROR_HANDLING",))
_LATE_PREFIXES = ("TORCHELASTIC_",)
_LATE_ENDS = ("_VISIBLE_DEVICES",)

_ASSIGNED = re.compile(
    r"""environ(?:b)?\s*\[\s*b?["']([A-Za-z_]\w*)["']\s*\]\s*=(?!=)"""
    r"""|(?:setdefault|putenv|setenv)\s*\(\s*b?["']([A-Za-z_]\w*)["']"""
)
_UPDATED = re.compile(r"environ\s*(?:\.\s*update\b|\|=)")
_NAME = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+")


def is_early(name: str) -> bool:
    """Whether a value of it that is set after the start may be ignored."""
    if name in _LATE_NAMES or name.startswith(_LATE_PREFIXES) or name.endswith(_LATE_ENDS):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)


def early_variables(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The early variables among `env`, sorted."""
    return tuple(sorted((name, value) for name, value in env.items() if is_early(name)))


def sets_early(text: str) -> str:
    """An early variable that the text of a program sets for itself, where it does; else empty."""
    names = [found[0] or found[1] for found in _ASSIGNED.findall(text)]
    if _UPDATED.search(text):
        names += _NAME.findall(text)
    return next((name for name in names if is_early(name)), "")
