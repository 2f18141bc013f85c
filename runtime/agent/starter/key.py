"""What makes two runs fit one starter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from .command_line import Cold, PythonCommand, parse_command
from .early import early_variables, sets_early
from .imports import imports_stdlib_alone
from .interpreters import Interpreter, find_interpreter, read_program

__all__ = ["Key", "WarmRequest", "key_of", "read_request"]


@dataclass(frozen=True, slots=True)
class Key:
    """A starter can fork the runs of its key, and no other.

    `cwd` is part of it: imports keep paths that they make absolute.
    """

    python: str
    interpreter: Interpreter
    flags: tuple[str, ...]
    cwd: str
    early: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WarmRequest:
    """A run as a starter needs it. It inherits the descriptors `fds` under their numbers.

    `imported` are modules that it would best find imported, with their files; `stdlib_alone`: it needs none.
    """

    key: Key
    argv: tuple[str, ...]
    env: Mapping[str, str]
    script: str | None
    fds: tuple[int, ...] = ()
    imported: Mapping[str, str] = field(default_factory=dict)
    stdlib_alone: bool = False


def key_of(command: PythonCommand, interpreter: Interpreter, env: Mapping[str, str], cwd: str) -> Key:
    return Key(command.python, interpreter, command.flags, cwd, early_variables(env))


def read_request(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    fds: Sequence[int] = (),
    imported: Mapping[str, str] = MappingProxyType({}),
) -> WarmRequest:
    """What to ask a starter for; reads the program and looks at the interpreter.

    Raises:
        Cold: the command does not start warm.
    """
    if not argv:
        raise Cold("there is no command")
    interpreter = find_interpreter(argv[0], env, cwd)
    command = parse_command(argv)
    if env.get("PYTHONINSPECT") or env.get("PYTHONSTARTUP"):
        raise Cold("PYTHONINSPECT or PYTHONSTARTUP is set")
    text = command.code if command.code is not None else read_program(command.script, cwd)
    if name := sets_early(text):
        raise Cold(f"the program itself sets {name}, which is read at import")
    key = key_of(command, interpreter, env, cwd)
    alone = imports_stdlib_alone(text)
    return WarmRequest(key, tuple(argv), env, command.script, tuple(fds), imported, alone)
