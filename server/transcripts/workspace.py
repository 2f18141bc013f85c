"""The text files of a workspace: as they were, and what has been edited since. Blocking."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...runtime.mounts.excludes import Rules
from ...runtime.mounts.scanning import rules_of
from .diffs import apply_diff, make_diff
from .format import EditStep

__all__ = ["TextFiles", "apply_edit"]

_LARGEST = 256 * 1024
_MOST = 5_000
# Of an environment the agent edits no file by hand: what it installs is a `shell` step.
_NOT_FOLLOWED = {".venv", "venv", "node_modules", "site-packages", ".git"}

_Stamp = tuple[int, int, int]


@dataclass(slots=True)
class TextFiles:
    """Those below a directory that are shown to hosts, of up to 256 KiB, 5,000 at most; looked at when asked."""

    root: Path
    _seen: dict[str, tuple[_Stamp, str]] = field(default_factory=dict)
    _begun: bool = False

    def edits(self) -> list[EditStep]:
        """What has been edited since the last look; the first look finds no edits."""
        before, now = self._seen, self._look()
        self._seen = now
        if not self._begun:
            self._begun = True
            return []
        return list(_edits(before, now))

    def texts(self) -> dict[str, str]:
        """What the last look saw, by name."""
        return {name: text for name, (_, text) in self._seen.items()}

    def copy_to(self, target: Path) -> None:
        """Copies what the last look saw."""
        for name, (_, text) in self._seen.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
            if os.access(self.root / name, os.X_OK):
                path.chmod(0o755)

    def _look(self) -> dict[str, tuple[_Stamp, str]]:
        found: dict[str, tuple[_Stamp, str]] = {}
        for path, status in _files(self.root):
            if len(found) >= _MOST:
                break
            name = path.relative_to(self.root).as_posix()
            stamp = status.st_mtime_ns, status.st_size, status.st_ino
            known = self._seen.get(name)
            if known is not None and known[0] == stamp:
                found[name] = known
            elif (text := _text(path)) is not None:
                found[name] = stamp, text
        return found


def _files(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    rules = Rules(rules_of(root))
    waiting = [root]
    while waiting:
        at = waiting.pop()
        try:
            entries = sorted(os.scandir(at), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            path = Path(entry.path)
            inside = os.fsencode(path.relative_to(root))
            try:
                if entry.is_symlink():
                    continue
                is_directory = entry.is_dir()
                if rules.excluding(inside, os.fsencode(entry.name), is_directory) is not None:
                    continue
                if is_directory:
                    waiting += [] if entry.name in _NOT_FOLLOWED else [path]
                elif entry.is_file() and entry.stat().st_size <= _LARGEST:
                    yield path, entry.stat()
            except OSError:
                continue


def _text(path: Path) -> str | None:
    try:
        data = path.read_bytes()
        return None if b"\0" in data else data.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _edits(
    before: dict[str, tuple[_Stamp, str]], now: dict[str, tuple[_Stamp, str]]
) -> Iterable[EditStep]:
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if new is None:
            yield EditStep(file=name, deleted=True)
        elif old is None:
            yield EditStep(file=name, text=new[1])
        elif old[1] != new[1]:
            yield EditStep(file=name, diff=make_diff(old[1], new[1], name))


def apply_edit(root: Path, step: EditStep) -> None:
    """
    Raises:
        ValueError: the file is not what was edited, or lies outside.
        OSError: it cannot be written.
    """
    path = root / step.file
    if not path.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{step.file} is outside the workspace")
    if step.deleted:
        path.unlink()
        return
    text = step.text if step.text is not None else apply_diff(_read(path), step.diff)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise ValueError(f"there is no {path.name}") from None
