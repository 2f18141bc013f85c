"""Commands that cannot be started, in words."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from milkweed.runtime.errors import InvalidArgument, MilkweedError, NotFound, Unavailable
from milkweed.runtime.services.commands import (
    check_command,
    check_directory,
    check_program,
    check_size,
    nearest,
    script_argv,
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory with an executable, a plain file and a directory; `bin` holds two programs."""
    for name in ("train.sh", "bin/python3.11", "bin/torchrun"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        path.chmod(0o755)
    (tmp_path / "plain.py").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "bin" / "hidden").touch()
    os.mkfifo(tmp_path / "fifo", 0o700)
    return tmp_path


def refusal(place: Path, *argv: str) -> str:
    with pytest.raises(MilkweedError) as caught:
        check_command(argv, str(place), {"PATH": str(place / "bin")}, " on host-0")
    return str(caught.value).removesuffix(" Correct the command, or use script for shell text.")


@pytest.mark.parametrize("name", ["torchrun", "python3.11", "./train.sh", "bin/torchrun", "data/../train.sh"])
def test_what_can_be_started_passes(place: Path, name: str) -> None:
    check_command([name], str(place), {"PATH": str(place / "bin")})


def test_the_nearest_programs_are_named(place: Path) -> None:
    assert (
        refusal(place, "torchurn") == "command_not_found: no command 'torchurn' on host-0; nearest: torchrun."
    )
    assert refusal(place, "bin/pyhton3.11").endswith("there is no such file; nearest: bin/python3.11.")
    assert refusal(place, "xyz") == "command_not_found: no command 'xyz' on host-0."


def test_what_is_there_but_cannot_be_executed_is_said(place: Path) -> None:
    assert f"'./data' on host-0: {place}/./data is a directory" in refusal(place, "./data")
    assert "is not executable (chmod +x, or name its interpreter)" in refusal(place, "./plain.py")
    assert "is not a regular file" in refusal(place, "./fifo")
    assert f"{place}/bin/hidden is not executable" in refusal(place, "hidden")


def test_a_program_of_the_working_directory_needs_its_path(place: Path) -> None:
    assert "it is not in PATH; the one in the working directory is ./train.sh" in refusal(place, "train.sh")
    assert refusal(place, "trian.sh").endswith("nearest: ./train.sh.")


@pytest.mark.parametrize("argv", [(), ("",), ("", "x")])
def test_an_empty_command_is_refused(place: Path, argv: tuple[str, ...]) -> None:
    assert refusal(place, *argv).startswith("invalid_argument: the command is empty")


def test_working_directories(place: Path) -> None:
    check_directory(str(place))
    with pytest.raises(NotFound, match="file_not_found"):
        check_directory(str(place / "none"))
    with pytest.raises(InvalidArgument, match="is not a directory"):
        check_directory(str(place / "plain.py"))
    if os.getuid():
        (place / "data").chmod(stat.S_IRUSR)
        with pytest.raises(InvalidArgument, match="may not be entered"):
            check_directory(str(place / "data"))


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("ls | wc\n", ("/bin/bash", "-eo", "pipefail", "/s")),
        ("", ("/bin/bash", "-eo", "pipefail", "/s")),
        ("#!/usr/bin/env python3\nprint()\n", ("/usr/bin/env", "python3", "/s")),
        ("#! /bin/sh -e -u\n", ("/bin/sh", "-e -u", "/s")),
        ("#!\nls\n", ("/bin/bash", "-eo", "pipefail", "/s")),
        ("# comment\n#!/bin/sh\n", ("/bin/bash", "-eo", "pipefail", "/s")),
    ],
)
def test_how_a_script_is_run(text: str, argv: tuple[str, ...]) -> None:
    assert script_argv(Path("/s"), text) == argv


def test_few_and_only_similar_names_are_offered() -> None:
    assert nearest("pyton", ["python", "python3", "python3.11", "pytest", "ls"])[0] == "python"
    assert len(nearest("a1", [f"a{n}" for n in range(20)])) <= 3
    assert nearest("zzz", ["ls"]) == []


def test_a_script_whose_interpreter_is_missing_is_refused(place: Path) -> None:
    script = place / "train.sh"
    script.write_bytes(b"#!/no/such/python -u\nprint()\n")
    told = refusal(place, "./train.sh")
    assert "its interpreter /no/such/python is missing" in told
    assert "nearest" not in told
    script.write_bytes(b"#!/bin/sh\r\nls\r\n")
    assert "ends in a carriage return" in refusal(place, "./train.sh")
    script.write_bytes(b"#!/bin/sh -e\nls\n")
    check_command(["./train.sh"], str(place), {})


def test_a_command_that_the_kernel_would_not_take_is_refused() -> None:
    check_size(["x", "y" * 131_071], {"A": "b"})
    for argv, env, told in (
        (["x", "y" * 131_072], {}, "a word of the command has 131,072 bytes; the most is 131,071"),
        (["x"], {"LONG": "y" * 131_072}, "the variable LONG has 131,077 bytes"),
        (["x", *["y" * 100_000] * 1000], {}, "the command and its environment have 100,"),
    ):
        with pytest.raises(InvalidArgument, match=told):
            check_size(argv, env)


def test_a_program_that_is_not_there_is_told_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    with pytest.raises(NotFound, match=r"no program tarin\.py; in .*: train\.py"):
        check_program(("/usr/bin/python3", "tarin.py"), str(tmp_path))
    for argv in (("python", "train.py"), ("python", "-m", "x"), ("python", "-c", "a.py"), ("cat", "x.py")):
        check_program(argv, str(tmp_path))


@pytest.mark.parametrize("number", [errno.ENOTCONN, errno.ESTALE, errno.EIO])
def test_a_directory_for_which_nobody_answers_is_not_said_to_be_missing(
    place: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> os.stat_result:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuse)
        with pytest.raises(Unavailable, match=r"mount_unusable: the working directory .* is in a mount"):
            check_directory(str(place))
