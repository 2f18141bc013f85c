"""The wheel as a user gets it: built from the source tree, opened and looked into."""

import email
import email.message
import subprocess
import sys
import sysconfig
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ("_native", "_native_memory")
SOURCE_SUFFIXES = {".c", ".cc", ".cpp", ".h", ".hpp", ".cmake", ".txt", ".toml"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
    ]
    build += ["--config-settings", f"build-dir={folder / 'build'}", str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as opened:
        return opened.namelist()


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    return email.message_from_string(dist_info(wheel, "METADATA"))


def dist_info(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as opened:
        (path,) = (item for item in opened.namelist() if item.endswith(f".dist-info/{name}"))
        return opened.read(path).decode()


def test_one_top_level_package(names: list[str]) -> None:
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"milkweed"}
    assert len(top) == 2
    assert len(names) == len(set(names))


def test_every_source_module_is_in_it(names: list[str]) -> None:
    expected = {
        f"milkweed/{path.relative_to(ROOT)}"
        for folder in ("server", "tools", "runtime")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert expected <= set(names)


def test_types_are_shipped(names: list[str]) -> None:
    stubs = {f"milkweed/runtime/{name}.pyi" for name in NATIVE}
    assert {"milkweed/py.typed", *stubs} <= set(names)


def test_the_native_modules_are_in_the_runtime(names: list[str]) -> None:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    built = sorted(name for name in names if name.endswith(".so"))
    assert built == [f"milkweed/runtime/{name}{suffix}" for name in NATIVE]


def test_no_native_source_is_shipped(names: list[str]) -> None:
    package = [Path(name) for name in names if name.startswith("milkweed/")]
    assert not [path for path in package if path.suffix in SOURCE_SUFFIXES or "native" in path.parts]


def test_the_command_is_installed(wheel: Path) -> None:
    entry_points = ConfigParser()
    entry_points.read_string(dist_info(wheel, "entry_points.txt"))
    assert dict(entry_points["console_scripts"]) == {"milkweed": "milkweed.server.cli:main"}


def test_torch_is_asked_for_by_extras_only(metadata: email.message.Message) -> None:
    required = metadata.get_all("Requires-Dist") or []
    base = [line for line in required if "extra ==" not in line]
    assert not [line for line in base if line.startswith(("torch", "numpy"))]
    assert [line for line in required if line.startswith("torch") and "extra ==" in line]
    assert set(metadata.get_all("Provides-Extra") or []) == {
        "torch",
        "monarch",
        "mount",
        "nvidia",
        "amd",
        "kubernetes",
        "skypilot",
        "dev",
    }


def test_licence_and_version_are_stated(metadata: email.message.Message) -> None:
    import milkweed

    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata["Version"] == milkweed.__version__


def test_the_unpacked_wheel_works_alone(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(tmp_path)
    code = "import milkweed.server, milkweed.tools, milkweed.runtime._native as n; print(n.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.startswith(str(tmp_path)), done.stderr
