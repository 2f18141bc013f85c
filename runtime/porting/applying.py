"""Writing a translation into the folder that it is of."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .records import Applied, Skipped, Translated
from .sources import MADE

__all__ = ["apply"]


def apply(root: Path, changed: Sequence[Translated]) -> Applied:
    """Blocking. Each file whole or not at all: nothing that somebody wrote is overwritten unseen.

    Refused are files that were changed since they were read, and new ones whose place has something that
    hipify did not make.
    """
    written: list[str] = []
    refused: list[Skipped] = []
    real = os.path.realpath(root)
    for one in (one for one in changed if not one.is_there):
        try:
            why = _refusal(root, real, one)
            if why:
                refused.append(Skipped(one.target, why))
                continue
            _replace(root / one.target, one.after, like=root / one.path)
            written.append(one.target)
        except OSError as error:
            refused.append(Skipped(one.target, error.strerror or str(error)))
    return Applied(tuple(written), tuple(refused))


def _refusal(root: Path, real: str, one: Translated) -> str:
    target = root / one.target
    if _text(root / one.path) != one.before:
        return f"{one.path} was changed meanwhile"
    parent = os.path.realpath(target.parent)
    if os.path.commonpath([real, parent]) != real:
        return "its folder leads out of the one that was named"
    if target.is_symlink():
        return "a symbolic link is there"
    if one.target != one.path and target.exists():
        there = _text(target)
        if there is None or not there.startswith(MADE):
            return "there is a file that hipify did not make"
    return ""


def _text(path: Path) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None


def _replace(target: Path, text: str, like: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(name, like.stat().st_mode & 0o777)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
