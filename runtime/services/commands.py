"""From the words of a command to a program that can be started, or to an error that names the nearest one."""

from __future__ import annotations

import difflib
import errno
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..errors import InvalidArgument, NotFound, Unavailable
from ..names import quoted

__all__ = ["check_command", "check_directory", "check_size", "nearest", "script_argv"]

_DEFAULT_SHELL = ("/bin/bash", "-eo", "pipefail")
_SHOWN = 3
_NOBODY_THERE = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ESTALE)
# The kernel's limits: of one string with its end, and what each costs besides; room for the program's name.
_STRING_MAX = 128 * 1024
_POINTER = 8
_SPARE = 4096
_FIRST_LINE = 256
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def check_directory(cwd: str) -> None:
    """Refuses a working directory that is none.

    Raises:
        NotFound: file_not_found.
        InvalidArgument: invalid_path, when it is a file or may not be entered.
        Unavailable: mount_unusable, nobody answers for the file system that it is in.
    """
    try:
        found = os.stat(cwd)
    except (OSError, ValueError) as error:  # ValueError: a NUL in it
        if isinstance(error, OSError) and error.errno in _NOBODY_THERE:
            raise Unavailable(
                "mount_unusable",
                f"the working directory {quoted(cwd)} is in a mount that does not answer: {error.strerror}",
                "A mount of ours is brought back within seconds: run again.",
            ) from None
        raise NotFound(
            "file_not_found", f"the working directory {quoted(cwd)} does not exist", "Give a cwd that exists."
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        raise InvalidArgument(
            "invalid_path", f"the working directory {quoted(cwd)} is not a directory", "Give another cwd."
        )
    if not os.access(cwd, os.X_OK):
        raise InvalidArgument(
            "invalid_path", f"the working directory {quoted(cwd)} may not be entered", "Give another cwd."
        )


def check_program(argv: Sequence[str], cwd: str, where: str = "") -> None:
    """Refuses `python FILE ...` where there is no such file; what else Python is told is its business.

    Raises:
        NotFound: file_not_found, with the nearest names.
    """
    is_python = bool(argv) and os.path.basename(argv[0]).startswith("python")
    if not is_python or len(argv) < 2 or not argv[1].endswith(".py"):
        return
    path = os.path.join(cwd, argv[1])
    if os.path.exists(path):
        return
    folder = os.path.dirname(path)
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".py")]
    except OSError:
        names = []
    near = nearest(os.path.basename(path), names) or sorted(names)[:_SHOWN]
    others = f" and {len(names) - len(near)} more" if len(names) > len(near) else ""
    there = f"; in {quoted(folder)}: {', '.join(near)}{others}" if near else ""
    raise NotFound(
        "file_not_found", f"no program {quoted(argv[1])}{where}{there}", "Correct the command, or give cwd."
    )


def check_command(argv: Sequence[str], cwd: str, env: Mapping[str, str], where: str = "") -> None:
    """Refuses a command that cannot be started; `where` follows the command's name in the error.

    Raises:
        NotFound: command_not_found, with the nearest executables.
        InvalidArgument: the command is empty.
    """
    if not argv or not argv[0]:
        raise InvalidArgument("invalid_argument", "the command is empty", "Give command or script.")
    name = argv[0]
    if "/" in name:
        path = os.path.join(cwd, name)
        reason = _refusal(path)
        if reason:
            siblings = _executables([os.path.dirname(path)])
            similar = [
                os.path.join(os.path.dirname(name), found)
                for found in nearest(os.path.basename(name), siblings)
                if found != os.path.basename(name)
            ]
            raise _not_found(name, where, reason, similar)
        return
    path_variable = env.get("PATH", _DEFAULT_PATH)
    found = [os.path.join(cwd, folder, name) for folder in path_variable.split(os.pathsep)]
    if any(not _refusal(path) for path in found):
        return
    here = os.path.join(cwd, name)
    if os.path.exists(here):
        reason = f"it is not in PATH; {_refusal(here) or f'the one in the working directory is ./{name}'}"
    else:
        reason = next((why for path in found if os.path.exists(path) and (why := _refusal(path))), "")
    local = {f"./{entry}": entry for entry in _executables([cwd])}
    similar = nearest(name, [*_executables(path_variable.split(os.pathsep)), *local.values()])
    raise _not_found(
        name, where, reason, [f"./{entry}" if f"./{entry}" in local else entry for entry in similar]
    )


def check_size(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Refuses a command whose words and variables are more than the kernel takes.

    Raises:
        InvalidArgument: with what is too large.
    """
    words = [len(os.fsencode(word)) + 1 for word in argv]
    variables = {name: len(os.fsencode(f"{name}={value}")) + 1 for name, value in env.items()}
    what = ""
    if max(words, default=0) > _STRING_MAX:
        what = f"a word of the command has {max(words) - 1:,} bytes; the most is {_STRING_MAX - 1:,}"
    elif long := [name for name, size in variables.items() if size > _STRING_MAX]:
        size = variables[long[0]] - 1
        what = f"the variable {quoted(long[0], 60)} has {size:,} bytes; the most is {_STRING_MAX - 1:,}"
    else:
        total = sum(words) + sum(variables.values()) + _POINTER * (len(words) + len(variables) + 2)
        if total > (most := os.sysconf("SC_ARG_MAX") - _SPARE):
            what = f"the command and its environment have {total:,} bytes; the most is {most:,}"
    if what:
        raise InvalidArgument("invalid_argument", what, "Pass it in a file, or use script for shell text.")


def script_argv(path: Path, text: str, interpreter: str = "") -> tuple[str, ...]:
    """How to run a script: by the interpreter, else by its `#!` line, as the kernel reads it, else by bash
    with -e and pipefail."""
    if interpreter:
        return (interpreter, str(path))
    first = text.split("\n", 1)[0]
    words = first[2:].strip().split(None, 1) if first.startswith("#!") else []
    return (*(words or _DEFAULT_SHELL), str(path))


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """The few names most like `name`, the best first."""
    return difflib.get_close_matches(name, sorted(set(names)), n=_SHOWN, cutoff=0.6)


def _refusal(path: str) -> str:
    """Why the file cannot be executed; empty when it can."""
    if not os.path.exists(path):
        return "there is no such file"
    if os.path.isdir(path):
        return f"{quoted(path)} is a directory"
    if not os.path.isfile(path):
        return f"{quoted(path)} is not a regular file"
    if not os.access(path, os.X_OK):
        return f"{quoted(path)} is not executable (chmod +x, or name its interpreter)"
    return _bad_interpreter(path)


def _bad_interpreter(path: str) -> str:
    """What is wrong with the program that a script's `#!` line names; empty for what has no such line."""
    try:
        with open(path, "rb") as file:
            line = file.read(_FIRST_LINE).split(b"\n")[0]
    except OSError:
        return ""
    words = line[2:].split() if line.startswith(b"#!") else []
    if not words:
        return ""
    if line.endswith(b"\r") and not os.path.exists(os.fsdecode(line[2:].strip(b" \t"))):
        return f"the #! line of {quoted(path)} ends in a carriage return (lines of Windows: convert it)"
    interpreter = os.fsdecode(words[0])
    if interpreter.startswith("/") and not os.path.exists(interpreter):
        return f"its interpreter {quoted(interpreter)} is missing (the #! line of {quoted(path)})"
    return ""


def _executables(folders: Iterable[str]) -> list[str]:
    names = []
    for folder in folders:
        try:
            with os.scandir(folder or ".") as entries:
                names += [
                    entry.name for entry in entries if os.access(entry.path, os.X_OK) and not entry.is_dir()
                ]
        except OSError:
            continue
    return names


def _not_found(name: str, where: str, reason: str, similar: Sequence[str]) -> NotFound:
    cause = f"no command '{quoted(name)}'{where}"
    if reason:
        cause += f": {reason}"
    if similar:
        cause += f"; nearest: {', '.join(similar)}"
    return NotFound("command_not_found", cause, "Correct the command, or use script for shell text.")
