"""What a rank runs in, read from files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from milkweed.runtime.evidence import Fingerprint
from milkweed.runtime.evidence.fingerprint import chosen_variables, read_fingerprint


def install(prefix: Path, **packages: str) -> Path:
    """Distributions in the site-packages of a prefix."""
    site = prefix / "lib/python3.11/site-packages"
    for name, version in packages.items():
        (site / f"{name}-{version}.dist-info").mkdir(parents=True)
    site.mkdir(parents=True, exist_ok=True)
    return site


def python(prefix: Path, name: str = "python3.11") -> Path:
    program = prefix / "bin" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("")
    program.chmod(0o755)
    return program


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A Python of the system."""
    prefix = tmp_path / "system"
    python(prefix)
    install(prefix, numpy="1.26", pip="23.0")
    return prefix


@pytest.fixture
def venv(tmp_path: Path, base: Path) -> Path:
    prefix = tmp_path / "venv"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/python").symlink_to(base / "bin/python3.11")
    (prefix / "pyvenv.cfg").write_text("home = /system/bin\nversion = 3.11.4\n")
    return prefix


def fingerprint(*argv: str, cwd: Path | str = "/", **env: str) -> Fingerprint:
    return read_fingerprint(argv, env, str(cwd))


def test_an_environment_has_its_own_packages_alone(venv: Path) -> None:
    install(venv, torch="2.9.0", Token_Lib="1.2")
    found = fingerprint(str(venv / "bin/python"), "train.py")
    assert found.packages == {"torch": "2.9.0", "token-lib": "1.2"}
    assert found.python == "3.11.4"
    assert found.interpreter == str(venv / "bin/python")


def test_one_with_the_systems_packages_has_both_and_its_own_win(venv: Path) -> None:
    with (venv / "pyvenv.cfg").open("a") as file:
        file.write("include-system-site-packages = true\n")
    install(venv, numpy="2.1")
    assert fingerprint(str(venv / "bin/python")).packages == {"numpy": "2.1", "pip": "23.0"}


def test_the_systems_python(base: Path) -> None:
    found = fingerprint("python3.11", PATH=str(base / "bin"))
    assert found.packages == {"numpy": "1.26", "pip": "23.0"}
    assert found.python == "3.11"


def test_what_is_installed_editable_counts(venv: Path) -> None:
    site = install(venv, trainer="0.3.dev1")
    (site / "__editable__.trainer.pth").write_text("/src")
    (site / "old-1.0-py3.11.egg-info").mkdir()
    (site / "nameless.dist-info").mkdir()
    assert fingerprint(str(venv / "bin/python")).packages == {"trainer": "0.3.dev1", "old": "1.0"}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("__version__ = '2.9.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n", "cpu"),
        ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n", "cuda 12.8"),
        ("cuda = None\nhip = '6.3.42134'\n", "hip 6.3.42134"),
        ("\0\0", "cpu"),
    ],
)
def test_what_torch_was_built_for(venv: Path, version: str, expected: str) -> None:
    torch = install(venv) / "torch"
    torch.mkdir()
    (torch / "version.py").write_text(version)
    assert fingerprint(str(venv / "bin/python")).torch == expected


@pytest.mark.parametrize("line", ["#!{python}\n", "#!/usr/bin/env python\n", "#! /usr/bin/env python\n"])
def test_a_program_that_names_its_interpreter(venv: Path, line: str) -> None:
    install(venv, torch="2.9.0")
    tool = venv / "bin/torchrun"
    tool.write_text(line.format(python=venv / "bin/python"))
    tool.chmod(0o755)
    found = fingerprint("torchrun", PATH=str(venv / "bin"))
    assert found.packages == {"torch": "2.9.0"}
    assert found.interpreter == str(venv / "bin/python")


@pytest.mark.parametrize(
    "argv",
    [(), ("",), ("no-such-python",), ("/nowhere/python",), ("./python",), ("/",), ("\0",), ("/etc/passwd",)],
)
def test_what_cannot_be_found_is_empty(argv: tuple[str, ...], tmp_path: Path) -> None:
    found = read_fingerprint(argv, {"PATH": str(tmp_path), "STAGE": "dev"}, str(tmp_path))
    assert found == Fingerprint(variables={"PATH": str(tmp_path), "STAGE": "dev"})


def test_a_broken_environment_is_read_as_far_as_it_goes(venv: Path, tmp_path: Path) -> None:
    install(venv, torch="2.9.0")
    (venv / "pyvenv.cfg").write_text("=\n===\nversion\n")
    assert fingerprint(str(venv / "bin/python")).packages["torch"] == "2.9.0"
    (venv / "bin/python").unlink()
    (venv / "bin/python").symlink_to(tmp_path / "gone")
    assert fingerprint(str(venv / "bin/python")).packages == {}


@pytest.mark.parametrize("file", ["pyvenv.cfg", "lib/python3.11/site-packages/torch/version.py"])
def test_a_file_of_an_environment_that_is_no_text_is_passed_over(venv: Path, file: str) -> None:
    install(venv, torch="2.9.0")
    (venv / file).parent.mkdir(exist_ok=True)
    (venv / file).write_bytes(b"\xff\xfe = 1\n")
    assert fingerprint(str(venv / "bin/python")).packages["torch"] == "2.9.0"


def test_a_script_is_known_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    first = fingerprint("python", "-u", "train.py", "--config=x", cwd=tmp_path)
    assert first.script == str(tmp_path / "train.py")
    assert len(first.script_hash) == 12
    (tmp_path / "train.py").write_text("print(2)\n")
    assert fingerprint("python", "train.py", cwd=tmp_path).script_hash != first.script_hash
    assert fingerprint("python", "gone.py", cwd=tmp_path).script_hash == ""


def test_secrets_and_noise_are_left_out_of_the_variables() -> None:
    secret = (
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "db_password",
        "Api_Key",
        "X_AUTH",
        "A_COOKIE",
        "GH_CREDENTIALS",
    )
    noise = (
        "MILKWEED_RUN",
        "_",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "SSH_CLIENT",
        "XDG_RUNTIME_DIR",
        "TERM",
        "HOSTNAME",
    )
    env = dict.fromkeys((*secret, *noise), "v") | {"NCCL_DEBUG": "INFO", "LONG": "x" * 999}
    assert chosen_variables(env) == {"LONG": "x" * 200, "NCCL_DEBUG": "INFO"}


def test_this_python_is_one(tmp_path: Path) -> None:
    found = read_fingerprint((sys.executable, "x.py"), dict(os.environ), str(tmp_path))
    assert found.packages["pytest"] == pytest.__version__
    assert found.python.startswith(".".join(map(str, sys.version_info[:2])))
