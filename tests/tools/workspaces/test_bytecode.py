"""Bytecode of a workspace that is mounted: on plain disk of each host, and never stale."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.holdings import HostLayout

from .stage import Shown, shown, told
from .test_edits import Edits
from .test_environments import make_environment

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

IMPORTS = """
import os, module
from pack import deep
for one in (module, deep):
    found = os.stat(one.__cached__)
    print(one.__cached__, found.st_ino, found.st_mtime_ns)
print([top for top, names, _ in os.walk(".") if "__pycache__" in names])
"""
MOUNTED = pytest.mark.parametrize("place", ["mount", "isolated"], indirect=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "ws"
    (directory / "pack").mkdir(parents=True)
    (directory / "main.py").write_text(IMPORTS)
    for name in ("module.py", "pack/__init__.py", "pack/deep.py"):
        (directory / name).write_text("VALUE = 1\n")
    return directory


def bytecode(mesh: Shown, host: int) -> list[Path]:
    """What lies on a host's disk."""
    (place,) = HostLayout(mesh.host_directory(host)).mounts()
    return sorted(place.bytecode.rglob("*.pyc"))


async def on_one(mesh: Shown, host: int, **more: Any) -> list[str]:
    """What it prints on a host."""
    run = await mesh.run("python", "main.py", ranks=f"hosts={host}", **more)
    assert run.state == "succeeded", told(run)
    return str(run.output_tail).splitlines()


@MOUNTED
async def test_it_is_on_plain_disk_and_used_by_the_next_run(
    real: Meshes, place: str, workspace: Path
) -> None:
    async with shown(real, place, workspace) as mesh:
        for host in (0, 1):
            first = await on_one(mesh, host)
            assert first[-1] == "[]"
            assert [line.split()[0] for line in first[:-1]] == [
                str(path) for path in bytecode(mesh, host) if "__init__" not in path.name
            ]
            assert await on_one(mesh, host) == first
        status = await mesh.ask("mesh_status", mesh=mesh.mesh)
        assert status.written == []
        await mesh.run("python", "main.py", options={"discard_host_changes": True})
        assert len(bytecode(mesh, 0)) == 3


@MOUNTED
async def test_an_edit_is_never_taken_for_what_was_compiled_before(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    directory = tmp_path / "ws"
    directory.mkdir()
    edits = Edits(directory)
    async with shown(real, place, directory) as mesh:
        for number in range(20):
            run = await mesh.run("python", "main.py", *edits.next(number))
            assert run.state == "succeeded", f"round {number}: {told(run)}"
        assert bytecode(mesh, 0)


COMPILED = """
import compileall, importlib.util, os, py_compile, subprocess, sys
assert compileall.compile_dir("pack", quiet=1)
made = py_compile.compile("module.py")
assert made == importlib.util.cache_from_source(os.path.abspath("module.py")), made
found = os.stat(made).st_ino
import module
assert os.stat(module.__cached__).st_ino == found
assert "__pycache__" not in [*os.listdir("."), *os.listdir("pack")]
done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], stdout=-3)
print(done.returncode, *os.listdir("tests/__pycache__"))
"""


@MOUNTED
async def test_compilers_and_pytest_work_as_ever(real: Meshes, place: str, workspace: Path) -> None:
    (workspace / "tests").mkdir()
    (workspace / "tests" / "test_it.py").write_text(
        "import module\ndef test_it(): assert module.VALUE == 1\n"
    )
    async with shown(real, place, workspace) as mesh:
        for _ in range(2):
            said = (await mesh.python(COMPILED)).splitlines()[-1].split()
            assert said[0] == "0", said
            assert [name.partition(".")[2].count("pytest") for name in said[1:]] == [1]


ENVIRONMENT = """
import os, sys, theirs, module
assert sys.prefix == os.path.join(os.getcwd(), ".venv"), sys.prefix
print(theirs.__cached__.startswith(os.path.dirname(theirs.__file__) + "/__pycache__/"))
print(os.stat(theirs.__cached__).st_mtime_ns, "__pycache__" in module.__cached__)
"""


@MOUNTED
async def test_an_environment_of_the_workspace_keeps_its_own(
    real: Meshes, place: str, workspace: Path
) -> None:
    packages = make_environment(workspace / ".venv")
    (packages / "theirs.py").write_text("VALUE = 1\n")
    python = str(workspace / ".venv" / "bin" / "python")
    subprocess.run([python, "-m", "compileall", "-q", str(packages / "theirs.py")], check=True)
    (compiled,) = packages.glob("__pycache__/theirs.*")
    async with shown(real, place, workspace) as mesh:
        said = (await mesh.python(ENVIRONMENT)).split()
    assert said == ["True", str(compiled.stat().st_mtime_ns), "False"]


@MOUNTED
async def test_where_a_run_says_where_it_is(
    real: Meshes, place: str, workspace: Path, tmp_path: Path
) -> None:
    wanted = tmp_path / "wanted"
    async with shown(real, place, workspace) as mesh:
        said = await on_one(mesh, 0, env={"PYTHONPYCACHEPREFIX": str(wanted)})
        assert bytecode(mesh, 0) == []
    assert said[0].startswith(str(wanted))
    assert sorted(path.name for path in wanted.rglob("module.*.pyc")) == [
        f"module.{sys.implementation.cache_tag}.pyc"
    ]
