"""Looking at the interpreter and the program that a command names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from .command_line import Cold, NotPython

__all__ = ["Interpreter", "find_interpreter", "read_program"]

_PYTHON = re.compile(r"python(3(\.\d+)?)?t?")
_ELF = b"\x7fELF"
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_MOST_TEXT = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Interpreter:
    """One installation: the path as the interpreter is called, and stamps of what it is made of."""

    path: str
    stamps: tuple[tuple[str, int, int], ...]


def find_interpreter(name: str, env: Mapping[str, str], cwd: str) -> Interpreter:
    """
    Raises:
        Cold: the command is no Python interpreter.
    """
    path = os.path.join(cwd, name) if "/" in name else _in_path(name, env, cwd)
    real = os.path.realpath(path)
    if not _PYTHON.fullmatch(os.path.basename(path)) or not _PYTHON.fullmatch(os.path.basename(real)):
        raise NotPython("the command is no Python program")
    try:
        with open(real, "rb") as file:
            if file.read(4) != _ELF:
                raise Cold(f"{path} is a wrapper of Python")
        environment = os.path.join(os.path.dirname(os.path.dirname(path)), "pyvenv.cfg")
        stamps = tuple(_stamp(part) for part in (real, environment) if os.path.exists(part))
    except OSError as error:
        raise Cold(f"{path}: {error.strerror}") from None
    return Interpreter(path, stamps)


def read_program(script: str | None, cwd: str) -> str:
    """The text of a script; empty for none, and for one that cannot be read (the interpreter will say so)."""
    if script is None:
        return ""
    try:
        with open(os.path.join(cwd, script), "rb") as file:
            return file.read(_MOST_TEXT).decode(errors="replace")
    except OSError:
        return ""


def _in_path(name: str, env: Mapping[str, str], cwd: str) -> str:
    for folder in env.get("PATH", _DEFAULT_PATH).split(os.pathsep):
        path = os.path.join(cwd, folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise NotPython(f"there is no {name} in PATH")


def _stamp(path: str) -> tuple[str, int, int]:
    found = os.stat(path)
    return (path, found.st_mtime_ns, found.st_size)
