"""A virtual environment of the workspace on the hosts."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.client import Meshes
from tests.tools.test_program_tools import asker

from .stage import Shown, arguments, shown

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(170)]


def make_environment(directory: Path) -> Path:
    """Without pip: another one's installs into it. Its site-packages."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(directory)]
    subprocess.run(command, check=True, capture_output=True)
    (found,) = directory.glob("lib/python3*/site-packages")
    return found


def make_wheel(at: Path, version: str) -> Path:
    wheel, about = at / f"tqdm-{version}-py3-none-any.whl", f"tqdm-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tqdm/__init__.py", f"__version__ = '{version}'\n")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: tqdm\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return wheel


async def pip(directory: Path, *command: str) -> bool:
    """Whether it did it; of the environment that is there."""
    python = str(directory / ".venv" / "bin" / "python")
    argv = [sys.executable, "-m", "pip", "--python", python, *command]
    done = await anyio.run_process(argv, check=False, cwd=directory)
    return done.returncode == 0


IMPORT = """
import importlib.util, os, sys
assert sys.prefix == os.path.join(os.getcwd(), ".venv"), sys.prefix
if importlib.util.find_spec("tqdm") is None:
    print("no tqdm")
else:
    import tqdm
    print("tqdm", tqdm.__version__, os.path.relpath(tqdm.__file__).startswith(".venv"))
"""


@pytest.mark.parametrize("place", ["mount", "copy"], indirect=True)
async def test_a_package_that_is_installed_here_is_there_in_the_next_run(
    real: Meshes, place: str, tmp_path: Path, full_size: bool
) -> None:
    """One of its name that is made here; before it, where there is time, the one from the registry."""
    directory = tmp_path / "ws"
    make_environment(directory / ".venv")
    (directory / "main.py").write_text(IMPORT)
    async with shown(real, place, directory) as mesh:
        assert await mesh.succeed("python", "main.py") == "no tqdm"
        if not (
            full_size and await pip(directory, "install", "-q", "tqdm", "--timeout", "20", "--retries", "0")
        ):
            wheel = make_wheel(tmp_path, "4.1")
            assert await pip(directory, "install", "-q", "--no-deps", "--no-index", str(wheel))
            assert await mesh.succeed("python", "main.py") == "tqdm 4.1 True"
        wheel = make_wheel(tmp_path, "9.2")
        assert await pip(directory, "install", "-q", "--no-deps", "--no-index", str(wheel))
        assert await mesh.succeed("python", "main.py") == "tqdm 9.2 True"
        assert await pip(directory, "uninstall", "-qy", "tqdm")
        assert await mesh.succeed("python", "main.py") == "no tqdm"


@pytest.fixture
def large_environment(tmp_path: Path, full_size: bool) -> Path:
    """Of 50,000 files; in the CI size of 5,000."""
    packages = make_environment(tmp_path / ".venv")
    for number in range(500 if full_size else 50):
        package = packages / f"package{number}"
        package.mkdir()
        for module in range(100):
            (package / f"m{module}.py").touch()
        (package / "m7.py").write_text(f"VALUE = {number}\n")
    return tmp_path


@pytest.mark.parametrize("place", ["mount"], indirect=True)
async def test_of_a_large_environment_only_what_is_imported_comes_to_the_hosts(
    real: Meshes, place: str, large_environment: Path
) -> None:
    """What makes it come up at once whatever it holds: no bytes of it, and afterwards those of few files."""
    async with shown(real, place, large_environment) as mesh:
        assert [cached(mesh, host) for host in range(2)] == [0, 0]
        script = "import os, sys, package7.m7; print(package7.m7.VALUE, os.path.relpath(sys.prefix))"
        (large_environment / "main.py").write_text(script)
        assert await mesh.succeed("python", "main.py") == "7 .venv"
        assert [0 < cached(mesh, host) < 100 for host in range(2)] == [True, True]


def cached(mesh: Shown, host: int) -> int:
    """Versions on that host's disk."""
    return sum(path.is_file() for path in mesh.host_directory(host).glob("mounts/*/cache/??/*"))


@pytest.mark.parametrize("place", ["isolated"], indirect=True)
async def test_an_environment_without_its_base_is_told_and_may_be_mended(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    ask = asker(real)
    make_environment(tmp_path / ".venv")
    python = tmp_path / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/opt/gone/bin/python3.99")
    mesh = (await ask("allocate_mesh", **arguments(place, tmp_path))).mesh
    with pytest.raises(Exception, match=r"/opt/gone/bin/python3\.99 is missing on "):
        await ask("run_on_mesh", mesh=mesh, command=["python", "-c", "print(1)"], wait_s=40)
    python.unlink()
    python.symlink_to(sys.executable)
    run = await ask("run_on_mesh", mesh=mesh, command=["python", "-c", "print(1)"], wait_s=40)
    assert run.output_tail == "ranks 0-1:\n1"
