"""CUDA sources translated by torch's own hipify upon a copy, and written back."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from milkweed.runtime.errors import InvalidArgument, NotFound, Unavailable
from milkweed.runtime.porting import MADE, Skipped, Source, Translated, Translation
from milkweed.runtime.porting.applying import apply
from milkweed.runtime.porting.sources import find_sources
from milkweed.runtime.porting.translating import MOST, interpreters, translate

pytestmark = pytest.mark.anyio

DEADLINE_S = 90.0
KERNEL = """#include <cuda_runtime.h>
#include "cuda/helper.cuh"
void run(float* a, cudaStream_t s) {
  add<<<1, 64, 0, s>>>(a);
  cudaStreamSynchronize(s);
  cuMemGetHandleForAddressRange(&fd, p, n, 1, 0);
}
"""
HELPER = "#pragma once\n#include <cuda_fp16.h>\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "program"
    (root / "cuda").mkdir(parents=True)
    (root / "kernel.cu").write_text(KERNEL)
    (root / "cuda" / "helper.cuh").write_text(HELPER)
    (root / "plain.cpp").write_text("int current() { return 1; }\n")
    return root


async def translated(root: Path) -> Translation:
    return await translate(find_sources(root).files, (sys.executable,), DEADLINE_S)


async def test_sources_are_translated_and_the_folder_stays_as_it_is(folder: Path) -> None:
    result = await translated(folder)
    assert {one.path: one.target for one in result.changed} == {
        "kernel.cu": "kernel.hip",
        "cuda/helper.cuh": "hip/helper.cuh",
    }
    kernel = next(one for one in result.changed if one.path == "kernel.cu")
    assert kernel.before == KERNEL
    assert "hipStreamSynchronize(s);" in kernel.after
    assert '#include "hip/helper.cuh"' in kernel.after
    assert "add<<<1, 64, 0, s>>>(a);" in kernel.after
    assert "cuMemGetHandleForAddressRange" in kernel.after  # not known to hipify
    assert (result.failed, result.python) == ((), sys.executable)
    assert result.torch
    assert sorted(path.name for path in folder.rglob("*")) == ["cuda", "helper.cuh", "kernel.cu", "plain.cpp"]


async def test_what_is_applied_is_there_and_applied_again_changes_nothing(folder: Path) -> None:
    result = await translated(folder)
    assert sorted(apply(folder, result.changed).written) == ["hip/helper.cuh", "kernel.hip"]
    assert (folder / "kernel.cu").read_text() == KERNEL
    assert (folder / "kernel.hip").read_text().startswith(MADE)
    again = await translated(folder)
    assert [one.is_there for one in again.changed] == [True, True]
    assert apply(folder, again.changed).written == ()
    (folder / "kernel.cu").write_text(KERNEL.replace("64", "128"))
    assert apply(folder, (await translated(folder)).changed).written == ("kernel.hip",)


async def test_one_file_that_hipify_cannot_take_does_not_keep_the_others_back(folder: Path) -> None:
    """It stops at the first one, wherever that is."""
    (folder / "lone.cu").write_text("#include <cuda.h>\n\udce9", encoding="utf-8", errors="surrogateescape")
    sources = find_sources(folder)
    assert [one.path for one in sources.skipped] == ["lone.cu"]
    forced = (*sources.files, Source("broken.cu", "void f() { k<<<1, 2>>>", True))
    result = await translate(forced, (sys.executable,), DEADLINE_S)
    assert "kernel.cu" in {one.path for one in result.changed}


async def test_line_ends_of_another_system_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_bytes(b"#include <cuda_runtime.h>\r\nint x;\r\n")
    (one,) = (await translated(tmp_path)).changed
    assert one.after.splitlines(keepends=True)[-2:] == ["#include <hip/hip_runtime.h>\r\n", "int x;\r\n"]


async def test_without_torch_that_is_told_of_each_interpreter(folder: Path, tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    sources = find_sources(folder).files
    with pytest.raises(NotFound, match="command_not_found: hipify is part of torch") as caught:
        await translate(sources, (str(bare), str(tmp_path / "missing")), DEADLINE_S)
    assert "No module named 'torch'" in caught.value.cause
    assert "No such file" in caught.value.cause
    assert (await translate(sources, (str(bare), sys.executable), DEADLINE_S)).python == sys.executable


async def test_an_interpreter_that_hangs_is_ended_in_time(folder: Path, tmp_path: Path) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 3600\n")
    slow.chmod(0o755)
    with pytest.raises(Unavailable, match="deadline_exceeded"):
        await translate(find_sources(folder).files, (str(slow),), 0.2)


async def test_an_interpreter_that_fails_is_told_with_its_last_words(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no such arch' >&2; exit 3\n")
    broken.chmod(0o755)
    with pytest.raises(Unavailable, match="hipify ended with exit 3: no such arch"):
        await translate(find_sources(folder).files, (str(broken),), DEADLINE_S)


async def test_more_files_than_hipify_can_take_in_time_are_refused_before() -> None:
    many = tuple(Source(f"{at}.cu", "cuda", True) for at in range(MOST + 1))
    with pytest.raises(InvalidArgument, match=r"out_of_range: 4,001 files have CUDA in them"):
        await translate(many, ("/no/such/python",), DEADLINE_S)
    assert await translate((Source("a.py", "", False),), ("/no/such/python",), DEADLINE_S) == Translation()


def test_only_what_has_cuda_in_it_is_translated_and_builds_are_left_out(folder: Path) -> None:
    for name in (".venv/x.cu", "build/y.cu", "requirements.txt", "data.csv", "notes.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("cuda\n")
    sources = find_sources(folder)
    assert {one.path: one.translatable for one in sources.files} == {
        "cuda/helper.cuh": True,
        "kernel.cu": True,
        "plain.cpp": False,
        "requirements.txt": False,
    }
    assert sources.others == 2


def test_junk_is_told_and_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "blob.h").write_bytes(b"\x7fELF\0\0cuda")
    (folder / "old.cpp").write_bytes("// caf\u00e9 cuda\n".encode("latin-1"))
    (folder / "large.cu").write_bytes(b"x" * (2 * 1024 * 1024 + 1))
    (tmp_path / "secret.cu").write_text("cuda")
    (folder / "link.cu").symlink_to(tmp_path / "secret.cu")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.cu")
    sources = find_sources(folder)
    assert {one.path: one.why.split(":")[0] for one in sources.skipped} == {
        "blob.h": "binary",
        "old.cpp": "not UTF-8 (byte 6)",
        "large.cu": "2 MB",
        "link.cu": "a symbolic link",
        "pipe.cu": "no regular file",
    }
    assert not next(one for one in sources.files if one.path == "old.cpp").translatable


def test_a_folder_with_too_much_in_it_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milkweed.runtime.porting.sources.FILES_MOST", 1)
    with pytest.raises(InvalidArgument, match="out_of_range"):
        find_sources(folder)


def test_the_environment_of_the_folder_is_asked_before_that_of_the_workspace(tmp_path: Path) -> None:
    for name in ("program", "work"):
        (tmp_path / name / ".venv" / "bin").mkdir(parents=True)
    own, workspace = (tmp_path / name / ".venv" / "bin" / "python" for name in ("program", "work"))
    workspace.touch()
    assert interpreters(tmp_path / "program", tmp_path / "work") == (str(workspace), sys.executable)
    own.touch()
    found = interpreters(tmp_path / "program", tmp_path / "work")
    assert found == (str(own), str(workspace), sys.executable)


def test_nothing_that_somebody_wrote_is_overwritten_unseen(folder: Path, tmp_path: Path) -> None:
    (folder / "kernel.hip").write_text("mine")
    (folder / "hip").symlink_to(tmp_path)
    (folder / "linked.cu").write_text("cuda")
    (folder / "linked.hip").symlink_to(tmp_path / "elsewhere")
    made = f"{MADE}\n"
    applied = apply(
        folder,
        [
            Translated("kernel.cu", "kernel.hip", KERNEL, made),
            Translated("cuda/helper.cuh", "hip/helper.cuh", HELPER, made),
            Translated("linked.cu", "linked.hip", "cuda", made),
            Translated("plain.cpp", "plain.cpp", "before", "after"),
            Translated("gone.cu", "gone.hip", "x", made),
        ],
    )
    assert applied.written == ()
    assert applied.refused == (
        Skipped("kernel.hip", "there is a file that hipify did not make"),
        Skipped("hip/helper.cuh", "its folder leads out of the one that was named"),
        Skipped("linked.hip", "a symbolic link is there"),
        Skipped("plain.cpp", "plain.cpp was changed meanwhile"),
        Skipped("gone.hip", "gone.cu was changed meanwhile"),
    )
    assert (folder / "kernel.hip").read_text() == "mine"
    assert not (tmp_path / "helper.cuh").exists()


def test_a_file_that_is_written_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("old")
    (tmp_path / "a.cpp").chmod(0o640)
    assert apply(tmp_path, [Translated("a.cpp", "a.cpp", "old", "new")]).written == ("a.cpp",)
    assert (tmp_path / "a.cpp").read_text() == "new"
    assert (tmp_path / "a.cpp").stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a.cpp"]
