"""What a translation to HIP leaves for a person, and what to do about it. Pure: texts in, findings out.

hipify renames what it knows and reports nothing of the rest. Of C++ sources the translated text is looked
through, so that what is found is what is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["ADVICE", "PACKAGES", "Left", "scan"]

_EXCERPT = 100
_BEFORE = 20
_DEVICE_FILES = (".cu", ".cuh", ".hip")
_C_FILES = (*_DEVICE_FILES, ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inl", ".inc")


@dataclass(frozen=True, slots=True)
class Left:
    """`kind` is a key of `ADVICE`, or of `PACKAGES` after `package:`."""

    kind: str
    path: str
    line: int
    excerpt: str


ADVICE = {
    "address_range": "hipify does not know it: hipMemGetHandleForAddressRange in HIP that has it, else"
    " hsa_amd_portable_export_dmabuf (the dma-buf that RDMA registers)",
    "driver_call": "a call of the CUDA driver that hipify does not know: use HIP's (hipModule*, hipMem*) or"
    " guard it by #ifndef USE_ROCM",
    "runtime_call": "a call of the CUDA runtime that hipify does not know: look for it in HIP's API, or"
    " guard it by #ifndef USE_ROCM",
    "ptx": "inline PTX does not compile for AMD: use a builtin or plain C++ under #ifdef USE_ROCM",
    "warp_mask": "a mask of 32 lanes: wavefronts of Instinct devices have 64, and HIP's *_sync functions take"
    " 64-bit masks: 0xffffffffffffffffULL under USE_ROCM, or the functions without _sync",
    "warp_size": "32 lanes are taken for granted: use warpSize in kernels, and on the host"
    " at::cuda::warp_size() or hipDeviceProp_t.warpSize (64 on Instinct, 32 on most Radeon)",
    "lane_math": "lane or warp numbers by 31 and 5: use % warpSize and / warpSize",
    "shuffle": "a shuffle without width and mask goes over 64 lanes on Instinct: give width 32 where that"
    " was meant",
    "ballot": "a ballot has 64 bits on AMD: keep it in unsigned long long, and use __popcll and __ffsll",
    "tensor_core": "tensor cores by wmma or mma: rocWMMA, or Composable Kernel, has the like for AMD",
    "cutlass": "CUTLASS and CuTe are NVIDIA's: Composable Kernel (ck) and its ck_tile are AMD's counterpart",
    "header": "a header that ROCm does not have: guard it by #ifndef USE_ROCM",
    "async_copy": "asynchronous copies, TMA, clusters: not on AMD; load plainly under USE_ROCM",
    "nvcc_flag": "flags of nvcc: hipcc is clang, so drop -gencode, --expt-*, -Xptxas, --use_fast_math"
    " (-ffast-math); devices are chosen by PYTORCH_ROCM_ARCH=gfx942",
    "arch": "compute capabilities: on AMD torch.cuda.get_device_capability() is the gfx number, such as"
    " (9, 4); ask torch.version.hip first",
    "cuda_version": "torch.version.cuda is None on ROCm: ask torch.version.hip too",
    "nvml": "NVML and nvidia-smi know no AMD device: amdsmi and amd-smi (torch.cuda.* works on both)",
    "image": "an image of CUDA: begin at rocm/pytorch or rocm/dev-ubuntu",
    "cmake": "CMake's CUDA: enable_language(HIP), find_package(hip), LANGUAGES HIP",
    "tensorrt": "TensorRT has no AMD counterpart of that name: MIGraphX, or torch.compile",
}

# What is installed on AMD in their place.
PACKAGES = {
    "flash-attn": "builds for ROCm from source (FLASH_ATTENTION_TRITON_AMD_ENABLE=TRUE, or its ck backend);"
    " torch's scaled_dot_product_attention has it built in",
    "flash-attn-3": "for Hopper only: use flash-attn, or aiter (amd-aiter)",
    "bitsandbytes": "a release that has ROCm builds, or build it with -DCOMPUTE_BACKEND=hip",
    "xformers": "its ROCm wheels are on download.pytorch.org/whl/rocm*, or leave it to torch's own attention",
    "apex": "AMD's fork builds for ROCm: github.com/ROCm/apex; torch has fused optimizers of its own",
    "tensorrt": "none on AMD: MIGraphX, or torch.compile",
    "torch-tensorrt": "none on AMD: torch.compile, or MIGraphX",
    "onnxruntime-gpu": "onnxruntime-rocm, or the MIGraphX provider",
    "transformer-engine": "AMD's fork: github.com/ROCm/TransformerEngine",
    "deep-ep": "NVSHMEM is NVIDIA's: MORI (amd-mori) has expert-parallel dispatch for AMD",
    "flashinfer": "AMD's port: github.com/ROCm/flashinfer, or aiter (amd-aiter)",
    "flashinfer-python": "AMD's port: github.com/ROCm/flashinfer, or aiter (amd-aiter)",
    "vllm": "the wheel is for CUDA: use the rocm/vllm image, or build it for ROCm",
    "sglang": "use its ROCm image, or build it for ROCm",
    "pynvml": "amdsmi",
    "nvidia-ml-py": "amdsmi",
    "triton": "the one that torch for ROCm brings (pytorch-triton-rocm)",
    "cuda-python": "hip-python",
    "pycuda": "hip-python, or torch's own streams and kernels",
    "numba-cuda": "numba-hip",
    "auto-gptq": "build it for ROCm, or use GPTQModel",
    "faiss-gpu": "faiss-cpu, or build faiss with HIP",
    "nvtx": "roctx; torch.cuda.nvtx works on ROCm",
    "dgl": "amd-dgl",
    "cutlass": "Composable Kernel",
    "deep-gemm": "none on AMD: aiter (amd-aiter) has such kernels",
    "nvidia-*": "comes with CUDA's torch and means nothing on AMD: leave it out",
    "cupy-cuda*": "cupy-rocm-7-0 (of the host's ROCm), or amd-cupy",
    "torch+cu*": "a build for CUDA: take the one for ROCm, from download.pytorch.org/whl/rocm*",
    "rapids": "amd-hipdf and its companions cover some of it",
}
_ALIKE = {
    "cudf": "rapids",
    "cuml": "rapids",
    "cugraph": "rapids",
    "nvidia-transformer-engine": "transformer-engine",
    "nvidia-cutlass": "cutlass",
    "flash-attn-hopper": "flash-attn-3",
    "nvidia-apex": "apex",
}

Rule = tuple[str, "re.Pattern[str]"]

# A name that HIP, or torch for ROCm, has as it is.
_KEPT = r"(?!cudaStream_t|cudaError_t)"
_CALLS: tuple[Rule, ...] = (
    ("address_range", re.compile(r"\bcuMemGetHandleForAddressRange\b")),
    (
        "driver_call",
        re.compile(
            r"(?<![\w.>:])cu(?!da|blas|fft|rand|sparse|solver|dnn|tlass)[A-Z][A-Za-z]+(?:_v\d+)?\s*\("
        ),
    ),
    ("runtime_call", re.compile(rf"(?<![\w:]){_KEPT}cuda[A-Z]\w+\s*\(")),
)
_WARPS: tuple[Rule, ...] = (
    (
        "warp_mask",
        re.compile(r"0x[fF]{8}(?![0-9a-fA-F])[uU]?\b.*|\b(?:FULL_MASK|FULL_WARP_MASK|full_mask)\b.*=.*32"),
    ),
    ("warp_size", re.compile(r"\bwarpSize\s*[=!]=\s*32\b")),
    (
        "warp_size",
        re.compile(
            r"(?i)\b(?:k_?)?warp_?size\w*\b\s*(?:=|\{|\s)\s*\(?32\b|\bthreads_?per_?warp\w*\s*=?\s*\(?32\b"
        ),
    ),
    (
        "lane_math",
        re.compile(
            r"(?i)(?:threadIdx\.\w|\btid\w*|\blane\w*|\bthread_?id\w*)\)?\s*(?:&\s*(?:31|0x1f)\b|>>\s*5\b|%\s*32\b|/\s*32\b)"
        ),
    ),
    ("shuffle", re.compile(r"\b__shfl(?:_up|_down|_xor)?\s*\(")),
    (
        "ballot",
        re.compile(
            r"\b(?:unsigned(?:\s+int)?|int|uint32_t|uint)\s+\w+\s*=\s*__(?:ballot|activemask)(?:_sync)?\s*\(|__(?:popc|ffs)\s*\(\s*__(?:ballot|activemask)"
        ),
    ),
)
_DEVICE: tuple[Rule, ...] = (
    ("ptx", re.compile(r"\b(?:asm|__asm__|__asm)\b\s*(?:volatile|__volatile__)?\s*\(")),
    ("tensor_core", re.compile(r"\bnvcuda::wmma\b|\bwmma::(?:fragment|mma_sync)|#\s*include\s*<mma\.h>")),
    (
        "async_copy",
        re.compile(
            r"\b__pipeline_\w+|\bcuda::(?:memcpy_async|barrier|pipeline)\b|\bcp_async\w*\s*\(|__cluster_dims__"
        ),
    ),
)
_INCLUDES: tuple[Rule, ...] = (
    ("cutlass", re.compile(r"#\s*include\s*[<\"](?:cutlass|cute)/")),
    ("tensorrt", re.compile(r"#\s*include\s*[<\"](?:NvInfer\w*)\.h")),
    (
        "header",
        re.compile(
            r"#\s*include\s*[<\"](?:cuda\.h|cuda/(?:std|barrier|atomic|pipeline|semaphore|functional|ptx)\b|cuda_\w+\.h|nv\w+/\w*|nvshmem\w*\.h|cooperative_groups/\w+|cupti\w*\.h|nvml\.h|cudaTypedefs\.h)"
        ),
    ),
)
_PYTHON: tuple[Rule, ...] = (
    ("nvcc_flag", re.compile(r"-gencode|arch=compute_|--expt-|-Xptxas|--use_fast_math|TORCH_CUDA_ARCH_LIST")),
    ("arch", re.compile(r"get_device_capability\s*\(|\bsm_?\d{2,3}\b")),
    ("cuda_version", re.compile(r"torch\.version\.cuda\b")),
    ("nvml", re.compile(r"nvidia-smi|\bimport\s+pynvml\b|\bfrom\s+pynvml\b")),
    ("warp_size", re.compile(r"\bWARP_SIZE\s*(?::[^=]*)?=\s*32\b|\bwarp_size\s*=\s*32\b")),
    ("tensorrt", re.compile(r"\bimport\s+tensorrt\b|\bfrom\s+tensorrt\b|\btorch_tensorrt\b")),
)
_SHELL: tuple[Rule, ...] = (
    ("image", re.compile(r"(?i)^\s*FROM\s+(?:\S*/)?(?:nvidia/cuda|nvcr\.io/\S+|pytorch/pytorch)\S*")),
    ("nvml", re.compile(r"\bnvidia-smi\b")),
    ("nvcc_flag", re.compile(r"-gencode|arch=compute_|TORCH_CUDA_ARCH_LIST|\bnvcc\b")),
)
_CMAKE: tuple[Rule, ...] = (
    (
        "cmake",
        re.compile(
            r"(?i)enable_language\s*\(\s*CUDA|find_package\s*\(\s*CUDA|LANGUAGES\b[^)]*\bCUDA\b|CMAKE_CUDA_\w+"
        ),
    ),
)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_REQUIREMENT = re.compile(
    r"""(?:^|["'\[,=\s])([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*(?=$|[<>=!~;@"',\s\]])"""
)
_TORCH_CUDA = re.compile(
    r"\b(?:torch|torchvision|torchaudio)\s*==\s*[\w.]+\+cu\d+|download\.pytorch\.org/whl/cu\d+|pytorch-cuda\b"
)


def scan(path: str, text: str) -> tuple[Left, ...]:
    """What is left in a file, by its name: of C++ the translated text is to be given."""
    name = path.rpartition("/")[2]
    if name.endswith(_C_FILES):
        return tuple(_of_rules(path, _without_comments(text), _rules_of_c(name, text)))
    if name == "CMakeLists.txt" or name.endswith(".cmake"):
        return tuple(_of_rules(path, text, (*_CMAKE, *_SHELL), comment="#"))
    found = list(_of_rules(path, text, _PYTHON, comment="#")) if name.endswith((".py", ".pyx")) else []
    if (
        name.lower().startswith("dockerfile")
        or name.endswith((".dockerfile", ".sh"))
        or name.lower() == "makefile"
    ):
        found += _of_rules(path, text, _SHELL, comment="#")
    if _names_packages(name):
        found += _packages(path, text)
    return tuple(found)


def _rules_of_c(name: str, text: str) -> tuple[Rule, ...]:
    """Assembly in a file without device code is the host's own."""
    on_device = name.endswith(_DEVICE_FILES) or "__device__" in text or "__global__" in text
    return (*_CALLS, *_INCLUDES, *((*_WARPS, *_DEVICE) if on_device else ()))


def _of_rules(path: str, text: str, rules: Iterable[Rule], comment: str = "") -> Iterator[Left]:
    for number, line in enumerate(text.splitlines(), 1):
        if comment and line.lstrip().startswith(comment):
            continue
        seen: set[str] = set()
        for kind, pattern in rules:
            if kind not in seen and (match := pattern.search(line)):
                if kind == "driver_call" and "address_range" in seen:
                    continue
                seen.add(kind)
                yield Left(kind, path, number, _excerpt(line, match.start()))


def _excerpt(line: str, at: int) -> str:
    """The part of a line that a match begins in."""
    start = max(0, at - _BEFORE) if len(line.strip()) > _EXCERPT else 0
    return line[start:].strip()[:_EXCERPT]


def _without_comments(text: str) -> str:
    """With line ends kept, so that lines have their numbers; strings stay, with what looks like a comment."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else "\n" * match[0].count("\n")

    return _COMMENTS.sub(blank, text)


def _names_packages(name: str) -> bool:
    lower = name.lower()
    if lower.endswith(".txt"):
        return "requirements" in lower or "constraints" in lower
    if lower.endswith((".yml", ".yaml")):
        return lower.startswith("environment")
    return lower in ("pyproject.toml", "setup.py", "setup.cfg", "pipfile")


def _packages(path: str, text: str) -> Iterator[Left]:
    is_list = path.lower().endswith((".txt", ".yml", ".yaml"))
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.split("#", 1)[0]
        if not bare.strip() or not (is_list or re.search(r"[\"'=]", bare)):
            continue
        known = {package for word in _REQUIREMENT.findall(bare) if (package := _package(word))}
        if _TORCH_CUDA.search(bare):
            known.add("torch+cu*")
        for package in sorted(known):
            yield Left(f"package:{package}", path, number, bare.strip()[:_EXCERPT])


def _package(word: str) -> str:
    """The key of `PACKAGES`; empty for one that is none of them."""
    name = re.sub(r"[-_.]+", "-", word).lower()
    name = _ALIKE.get(re.sub(r"-cu\d+$", "", name), name)
    if name in PACKAGES:
        return name
    if name.startswith("nvidia-"):
        return "nvidia-*"
    if re.match(r"cupy-cuda\d*", name):
        return "cupy-cuda*"
    return ""
