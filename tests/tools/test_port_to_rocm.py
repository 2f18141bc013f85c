"""`port_to_rocm`: what it tells, and what it writes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from milkweed.runtime.errors import InvalidArgument
from milkweed.runtime.porting import Applied, Skipped, Source, Sources, Translated, Translation
from milkweed.tools.porting_report import describe_port
from milkweed.tools.registry import Call, Registry
from milkweed.tools.verdicts.rocm_scan import ADVICE, PACKAGES, Left
from tests.fakes import FakeMeshes
from tests.runtime.porting.test_porting import KERNEL

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILKWEED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MILKWEED_RUNTIME_DIR", str(tmp_path / "run"))
    root = tmp_path / "program"
    root.mkdir()
    (root / "kernel.cu").write_text(KERNEL)
    (root / "requirements.txt").write_text("numpy\nflash-attn\n")
    return root


async def port(folder: Path | str, **given: object) -> str:
    async def report(done: float, total: float | None, message: str) -> None:
        pass

    tool = Registry.load("amd").find("port_to_rocm")
    answer = await tool(Call(FakeMeshes(), report), {"path": str(folder), **given})  # type: ignore[arg-type]
    return answer.text  # type: ignore[union-attr]


async def test_a_dry_run_shows_the_diff_and_what_is_left_and_writes_nothing(folder: Path) -> None:
    said = await port(folder)
    first, second, *_ = said.splitlines()
    assert first == f"{folder} (dry run): 1 file of 1 source translated, 2 places of 2 kinds left for you."
    assert second.startswith("- address_range: ")
    assert "kernel.cu:6: cuMemGetHandleForAddressRange" in said
    assert "requirements.txt:2: flash-attn" in said
    assert "+  hipStreamSynchronize(s);" in said
    assert said.endswith("dry_run=False) writes them beside the originals.")
    assert sorted(path.name for path in folder.iterdir()) == ["kernel.cu", "requirements.txt"]


async def test_it_writes_where_that_is_asked_for_and_says_so(folder: Path) -> None:
    assert "(1 file written)" in await port(folder, dry_run=False)
    assert "hipStreamSynchronize" in (folder / "kernel.hip").read_text()
    again = await port(folder)
    assert "1 file of 1 source translated (1 there already), 2 places of 2 kinds" in again
    assert "dry_run=False" not in again
    assert "+++" not in again


async def test_what_is_no_folder_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"invalid_path.*is a file"):
        await port(folder / "kernel.cu")
    with pytest.raises(InvalidArgument, match=r"invalid_path.*does not exist"):
        await port(folder / "nowhere")


async def test_a_program_of_torch_alone_has_nothing_to_translate(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    (folder / "train.py").write_text("import torch\n")
    assert "a program of torch alone runs on ROCm as it is" in await port(folder)


async def test_a_long_diff_is_kept_in_a_file(folder: Path) -> None:
    for at in range(40):
        (folder / f"k{at}.cu").write_text(KERNEL)
    said = await port(folder)
    assert len(said.encode()) < 8192
    (line,) = [line for line in said.splitlines() if "lines of the diff" in line]
    kept = Path(line.rpartition("all of it: ")[2].rstrip("]"))
    assert kept.read_text().count("+++ b/") == 41


async def test_a_name_that_is_no_text_is_shown_with_escapes(folder: Path) -> None:
    for at in range(40):
        (folder / f"k{at}\udcff.cu").write_text(KERNEL)
    said = await port(folder)
    assert len(said.encode()) < 8192
    assert r"k0\xff.cu:6: cuMemGetHandleForAddressRange" in said
    kept = Path(said.rpartition("all of it: ")[2].partition("]")[0])
    assert r"--- a/k0\xff.cu" in kept.read_text()


def test_the_toolset_is_served_only_where_it_is_asked_for() -> None:
    assert "port_to_rocm" not in {tool.name for tool in Registry.load().tools}
    with pytest.raises(InvalidArgument, match="--read-only"):
        Registry.load("amd", read_only=True).find("port_to_rocm")


def test_however_much_there_is_to_tell_an_answer_is_bounded() -> None:
    files = tuple(Source(f"{'d' * 200}/{at}.cu", "", True) for at in range(500))
    changed = tuple(Translated(one.path, one.path, "a\n", "b\n" * 50) for one in files)
    left = tuple(
        Left(kind, one.path, 1, "x" * 300)
        for one in files
        for kind in [*ADVICE, *(f"package:{name}" for name in PACKAGES)]
    )
    skipped = tuple(Skipped("y" * 300, "z" * 300) for _ in range(100))
    said = describe_port(
        "/p", Sources(files, skipped), Translation(changed, skipped, "2.13", sys.executable), left,
        Applied((), skipped), "+b\n" * 100_000, "/state/x.diff", 5000,
    )  # fmt: skip
    assert len(said.encode()) < 8192
    assert "all of it: /state/x.diff" in said
