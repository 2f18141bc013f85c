"""What a translation to HIP leaves for a person."""

from __future__ import annotations

import pytest

from milkweed.tools.verdicts.rocm_scan import ADVICE, PACKAGES, scan


def kinds(path: str, text: str) -> list[tuple[str, int]]:
    return [(left.kind, left.line) for left in scan(path, text)]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("cuMemGetHandleForAddressRange(&fd, p, n, t, 0);", "address_range"),
        ("CUresult r = cuMulticastCreate(&h, &p);", "driver_call"),
        ("cudaGraphConditionalHandleCreate(&h, g);", "runtime_call"),
        ('asm volatile("mov.u32 %0, %laneid;" : "=r"(x));', "ptx"),
        ('asm("bar.sync 0;");', "ptx"),
        ("v += __shfl_down_sync(0xffffffff, v, 16);", "warp_mask"),
        ("#define FULL_MASK 0xFFFFFFFFu", "warp_mask"),
        ("if (warpSize == 32) return;", "warp_size"),
        ("constexpr int kWarpSize = 32;", "warp_size"),
        ("#define WARP_SIZE 32", "warp_size"),
        ("static const int THREADS_PER_WARP = 32;", "warp_size"),
        ("int lane = threadIdx.x & 31;", "lane_math"),
        ("int lane = threadIdx.x % 32;", "lane_math"),
        ("int warp = tid >> 5;", "lane_math"),
        ("v = __shfl_xor(v, 1);", "shuffle"),
        ("unsigned int b = __ballot_sync(m, p);", "ballot"),
        ("int n = __popc(__activemask());", "ballot"),
        ("wmma::fragment<wmma::matrix_a, 16, 16, 16, half> a;", "tensor_core"),
        ("#include <cute/tensor.hpp>", "cutlass"),
        ("#include <cuda/barrier>", "header"),
        ("#include <nvshmem.h>", "header"),
        ("__pipeline_memcpy_async(a, b, 16);", "async_copy"),
    ],
)
def test_what_is_left_in_device_code_is_found(line: str, kind: str) -> None:
    assert kinds("a.cu", f"// a kernel\n{line}\n") == [(kind, 2)]
    assert kind in ADVICE


@pytest.mark.parametrize(
    "line",
    [
        "hipStreamSynchronize(s);",
        "at::cuda::getCurrentCUDAStream();",
        "cudaStream_t stream = at::hip::getCurrentHIPStream();",
        "auto current = curve(1);",
        "int x = custom(1);",
        "uint32_t color = 0xffffff;",
        "uint64_t all = 0xffffffffffffffffULL;",
        "int n = size / 32;",
        "int half_bits = flags & 31;",
        '// asm volatile ("mov")',
        "/* cuMemGetHandleForAddressRange( */",
        '#include "cuda/helper.cuh"',
        "v = __shfl_sync(mask, v, 0);",
    ],
)
def test_what_is_well_is_not_found(line: str) -> None:
    assert kinds("a.cu", line) == []


def test_what_only_device_code_has_is_not_looked_for_elsewhere() -> None:
    host = 'asm volatile("pause");\nuint32_t mask = 0xffffffff;\n'
    assert kinds("timer.cpp", host) == []
    assert kinds("timer.cpp", f"{host}__device__ void f();\n") == [("ptx", 1), ("warp_mask", 2)]


def test_lines_keep_their_numbers_behind_comments() -> None:
    assert kinds("a.cu", '/* one\ntwo */\n// three\nasm("x");\n') == [("ptx", 4)]
    assert kinds("a.cu", 'const char* s = "// no comment"; asm("x");') == [("ptx", 1)]


def test_a_long_line_is_shown_where_it_matches() -> None:
    (left,) = scan("a.cu", f'{"x; " * 200}asm("bar");')
    assert 'asm("bar");' in left.excerpt
    assert len(left.excerpt) <= 100


REQUIREMENTS = """# for CUDA
torch==2.4.0+cu121
flash_attn>=2.5 ; python_version > "3.8"
nvidia-cublas-cu12
cupy-cuda12x==13.*
bitsandbytes
transformer_engine[pytorch]
--extra-index-url https://download.pytorch.org/whl/cu121
numpy  # not tensorrt
"""


def test_packages_for_cuda_alone_are_found_with_what_there_is_on_amd() -> None:
    assert kinds("requirements-gpu.txt", REQUIREMENTS) == [
        ("package:torch+cu*", 2),
        ("package:flash-attn", 3),
        ("package:nvidia-*", 4),
        ("package:cupy-cuda*", 5),
        ("package:bitsandbytes", 6),
        ("package:transformer-engine", 7),
        ("package:torch+cu*", 8),
    ]


def test_packages_are_found_wherever_they_are_named() -> None:
    pyproject = '[project]\nname = "x"\ndependencies = ["torch", "flash-attn>=2", "apex"]\n'
    assert kinds("pyproject.toml", pyproject) == [("package:apex", 3), ("package:flash-attn", 3)]
    assert kinds("setup.py", 'install_requires=["xformers"]') == [("package:xformers", 1)]
    conda = "dependencies:\n  - pytorch-cuda=12.1\n  - pip:\n    - deep_ep\n"
    assert kinds("environment.yml", conda) == [("package:torch+cu*", 2), ("package:deep-ep", 4)]
    assert kinds("README.txt", "flash-attn") == []
    assert all(PACKAGES.values())


@pytest.mark.parametrize(
    ("path", "line", "kind"),
    [
        ("setup.py", 'extra = {"nvcc": ["-gencode", "arch=compute_90,code=sm_90"]}', "nvcc_flag"),
        ("train.py", "if torch.cuda.get_device_capability()[0] >= 8:", "arch"),
        ("train.py", "assert torch.version.cuda is not None", "cuda_version"),
        ("train.py", "import pynvml", "nvml"),
        ("train.py", 'subprocess.run(["nvidia-smi"])', "nvml"),
        ("Dockerfile", "FROM nvidia/cuda:12.4.0-devel-ubuntu22.04", "image"),
        ("CMakeLists.txt", "enable_language(CUDA)", "cmake"),
        ("run.sh", "nvidia-smi -L", "nvml"),
    ],
)
def test_what_builds_and_programs_take_for_granted_is_found(path: str, line: str, kind: str) -> None:
    found = [left.kind for left in scan(path, line)]
    assert kind in found
    assert set(found) <= {kind, "arch"}
    assert scan(path, f"# {line}") == ()


def test_what_is_no_source_has_nothing_left() -> None:
    assert scan("notes.md", "asm volatile(") == ()
    assert scan("a.cu", "") == ()
