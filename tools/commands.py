"""From what an agent writes as a command to the words of it: split as a shell would, run without one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from glob import escape

from ..runtime.errors import InvalidArgument

__all__ = [
    "check_env",
    "check_folders",
    "check_keep",
    "check_launcher",
    "check_python_script",
    "check_script",
    "python_command",
    "split_command",
]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"python[\d.]*")
_OPERATORS = {
    "|": "a pipe or ||",
    "&": "& or &&",
    ";": "several commands",
    "<": "a redirection",
    ">": "a redirection",
    "`": "a command substitution",
    "\n": "several lines",
    "*": "a glob",
}
_USE_SCRIPT = "Pass it as script instead of command, or put that part in single quotes to mean it literally."


def split_command(command: str | Sequence[str]) -> tuple[str, ...]:
    """The words of a command; a list is taken as it is.

    Raises:
        InvalidArgument: empty, an open quote, or something that only a shell can do.
    """
    if isinstance(command, str):
        command = command.replace("\\\n", " ").strip()
        for character, quoted in _outside_single_quotes(command):
            _refuse_shell(character, quoted)
        words = _split(command)
        if words and (assigned := _ASSIGNMENT.fullmatch(words[0])):
            raise InvalidArgument(
                "invalid_argument",
                f"the command begins with the assignment {assigned[1]}=, which a shell would read",
                f'Pass env={{"{assigned[1]}": ...}} and begin the command with the program.',
            )
    else:
        words = list(command)
    if not words or not words[0]:
        raise InvalidArgument(
            "invalid_argument", "the command is empty", "Name a program, such as 'python train.py'."
        )
    if any("\0" in word for word in words):
        raise InvalidArgument("invalid_argument", "the command has a NUL character", "Nothing was started.")
    return tuple(words)


def check_launcher(argv: Sequence[str], launcher: str) -> None:
    """Refuses a command that starts torchrun itself where each rank is started already.

    Raises:
        InvalidArgument: it would train once in every rank, each alone.
    """
    starts_torchrun = bool(argv) and (
        argv[0].rpartition("/")[2] == "torchrun"
        or any(word in ("torch.distributed.run", "torch.distributed.launch") for word in argv[1:3])
    )
    if starts_torchrun and launcher in ("spmd", "torchrun"):
        raise InvalidArgument(
            "invalid_argument",
            f"launcher={launcher!r} starts every rank, and this command would start torchrun in each",
            "Give launcher='torchrun' and the program alone: command='python train.py'.",
        )


def check_script(script: str) -> str:
    """The text of a script; what its `#!` line names runs it, else bash.

    Raises:
        InvalidArgument: there is nothing in it, or what no file of text has.
    """
    if not script.strip():
        raise InvalidArgument("invalid_argument", "the script is empty", "Pass its text, or a command.")
    if "\0" in script:
        raise InvalidArgument("invalid_argument", "the script has a NUL character", "Nothing was started.")
    return script


def python_command(argv: Sequence[str]) -> tuple[str, ...]:
    """The command of a Python program with its interpreter in front, which is left out before a file.

    Raises:
        InvalidArgument: it is none.
    """
    if argv[0].endswith(".py"):
        return ("python", *argv)
    if _PYTHON.fullmatch(argv[0].rpartition("/")[2]) and len(argv) > 1:
        return tuple(argv)
    raise InvalidArgument(
        "invalid_argument",
        f"{argv[0][:120]!r} is no Python program, and a controller is one",
        "Give command='controller.py ...' or 'python -m ...'; run_on_mesh runs anything else.",
    )


def check_python_script(script: str) -> str:
    """The text of a Python program, as far as that can be seen: its interpreter is not known here.

    Raises:
        InvalidArgument: it is a file's name, or its `#!` line names another interpreter.
    """
    check_script(script)
    first = script.split("\n", 1)[0]
    what = ""
    if first.startswith("#!") and "python" not in first:
        what = f"the script is for {first[2:].strip()[:60]}, and a controller is a Python program"
    elif re.fullmatch(r"\S+\.py", script.strip()):
        what = f"the script is to be a program's text, and {script.strip()[:60]!r} is the name of a file"
    if what:
        raise InvalidArgument("invalid_argument", what, "Name a file by command='controller.py ...'.")
    return script


def check_env(env: Mapping[str, str]) -> dict[str, str]:
    """Variables that a process can have.

    Raises:
        InvalidArgument: a name or value that cannot be, or one of Milkweed's own.
    """
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidArgument(
                "invalid_argument",
                f"env: {name[:60]!r} cannot be a variable",
                "Names have no =, nothing has a NUL.",
            )
        if name.startswith("MILKWEED_"):
            raise InvalidArgument(
                "invalid_argument", f"env: {name[:60]} is Milkweed's own", "Choose another name."
            )
    return dict(env)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidArgument(
            "invalid_argument",
            f"cannot split {text[:120]!r}: {error}",
            "Close the quote, or pass a list of words.",
        ) from None


def _outside_single_quotes(command: str) -> Iterator[tuple[str, bool]]:
    """What a shell would look at, with whether it stands in double quotes; `$` comes with what follows it,
    and `~` only where it begins a word."""
    quoted = False
    at, end = 0, len(command)
    while at < end:
        character = command[at]
        if character == "\\":
            at += 2
        elif character == "'" and not quoted:
            closing = command.find("'", at + 1)
            at = end if closing < 0 else closing + 1
        elif character == '"':
            quoted = not quoted
            at += 1
        else:
            if character == "$":
                yield command[at : at + 2], quoted
            elif character != "~" or at == 0 or command[at - 1].isspace():
                yield character, quoted
            at += 1


def _refuse_shell(character: str, quoted: bool) -> None:
    if character[0] == "$" and re.match(r"\$[A-Za-z_{(]", character):
        what = "a command substitution" if character == "$(" else "a variable"
    elif character == "~" and not quoted:
        what = "a home directory"
    elif character in _OPERATORS and (not quoted or character == "`"):
        what = _OPERATORS[character]
    else:
        return
    shown = "line break" if character == "\n" else character
    raise InvalidArgument(
        "invalid_argument", f"the command has {what} ({shown}), and no shell runs it", _USE_SCRIPT
    )


def check_keep(globs: Sequence[str], directory: str) -> tuple[str, ...]:
    """Globs of files to keep, in full: relative ones begin at `directory`, whose name is no glob.

    Raises:
        InvalidArgument: one that is empty, leads above where it begins, or would keep everything there is.
    """
    found = []
    for glob in globs:
        whole = glob if glob.startswith("/") else f"{escape(directory)}/{glob}"
        names = [part for part in whole.split("/") if part not in ("", ".")]
        if not glob.strip() or ".." in names or "\0" in glob or not names or names[0] == "**":
            raise InvalidArgument(
                "invalid_argument",
                f"keep={glob[:80]!r} names no files below a directory",
                "Give globs such as 'checkpoints/**' or '**/*.pt'.",
            )
        found.append("/" + "/".join(names))
    return tuple(found)


def check_folders(folders: Sequence[str]) -> tuple[str, ...]:
    """Paths of folders in the workspace, none of which lies in another.

    Raises:
        InvalidArgument: one that is absolute, the workspace itself, outside of it, or in another.
    """
    found = []
    for folder in folders:
        names = [part for part in folder.split("/") if part not in ("", ".")]
        if folder.startswith("/") or ".." in names or "\0" in folder or not names:
            raise InvalidArgument(
                "invalid_argument",
                f"scratch={folder[:80]!r} is no folder below the workspace",
                "Give a relative path such as 'checkpoints'.",
            )
        found.append("/".join(names))
    for one in found:
        if other := next((other for other in found if other.startswith(f"{one}/")), None):
            raise InvalidArgument(
                "invalid_argument", f"scratch={other[:80]!r} is in {one[:80]!r}", "Leave the inner one out."
            )
    return tuple(dict.fromkeys(found))
