"""What a starter has imported, and from where: whether a run would import the same."""

from __future__ import annotations

import os
import sys
import sysconfig
import zipimport
from collections.abc import Iterable, Iterator
from types import ModuleType

__all__ = ["Files", "distribution_of", "is_importable"]

_ENDS = (".py", ".so", ".pyc", ".pth", ".egg-link")


class Files:
    """Remembers the directories that modules are searched in, and the files they came from."""

    def __init__(self, search_path: Iterable[str]) -> None:
        self._directories = {path: (_stamp(path), _names(path)) for path in search_path}
        self._files: dict[str, tuple[int, int]] = {}
        self._imported: set[str] = set()

    def note_modules(self, before: set[str]) -> None:
        """Remembers the modules of now; those of `before` were there before any script's directory counts."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and os.path.isabs(file):
                # A copy: what a starter looks at is copied, and its children are left alone with the pages.
                self._files[os.fsdecode(os.fsencode(file))] = _stamp(file)
            if name not in before:
                self._imported.add(name.partition(".")[0])
        self._imported -= {name.partition(".")[0] for name in before}

    def changed(self) -> str:
        """What file or directory is no longer as it was, in words; empty when all are."""
        for file, stamp in self._files.items():
            if _stamp(file) != stamp:
                return f"{file} has changed since it was imported"
        for path, (stamp, names) in self._directories.items():
            if _stamp(path) != stamp and _names(path) != names:
                return f"{path} has changed since it was imported"
        return ""

    def shadowed(self, directory: str) -> str:
        """A module in the directory that a script there would get instead of one that is imported already."""
        return next((name for name in sorted(_names(directory)) if _module_name(name) in self._imported), "")


def distribution_of(module: ModuleType | None) -> str:
    """The file of a module that is neither ours nor the interpreter's own; empty for those and for None."""
    file = getattr(module, "__file__", None) or ""
    own = {sysconfig.get_path("stdlib"), os.path.dirname(os.environ["MILKWEED_STARTER_HOOK"])}
    inside = any(os.path.dirname(file) == directory for directory in own)
    etc = os.path.realpath(file).startswith("/etc/python3")
    return "" if inside or etc else file


def is_importable(script: str) -> bool:
    """Whether the interpreter would look for a `__main__` inside."""
    if os.path.isdir(script):
        return True
    try:
        zipimport.zipimporter(script)
    except zipimport.ZipImportError:
        return False
    return True


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def _names(directory: str) -> frozenset[str]:
    return frozenset(_modules_in(directory))


def _modules_in(directory: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(_ENDS) or (entry.is_dir() and _is_package(directory, name)):
                    yield name
    except OSError:
        return


def _is_package(directory: str, name: str) -> bool:
    if name.endswith((".dist-info", ".egg-info")):
        return True
    return name.isidentifier() and os.path.exists(os.path.join(directory, name, "__init__.py"))


def _module_name(entry: str) -> str:
    return entry.partition(".")[0]
