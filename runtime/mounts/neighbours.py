"""Which small files to fetch besides one that was opened: those that stand after it in its directory.

Programs that read one file of a directory often read more of it, in the order of a listing or in their own. A
fetch costs a way there and back, whatever it brings: with each file of a directory that has to be waited for,
more of its neighbours come along.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from .manifest import FILE, Directory, FileRef, join

__all__ = ["Neighbours"]

_SMALL = 128 * 1024
_MOST_BYTES = 2 * 1024 * 1024
_FIRST_BATCH = 8
_LARGEST_BATCH = 64
_MOST_DIRECTORIES = 256


@dataclass(slots=True)
class _Round:
    """Through the names of a directory once, from a file on and over the end to before it."""

    names: list[bytes]
    at: int = 0
    batch: int = 0


class Neighbours:
    """Remembers of each directory how far it has come."""

    def __init__(self) -> None:
        self._rounds: OrderedDict[bytes, _Round] = OrderedDict()

    def after(self, directory: bytes, name: bytes, content: Directory) -> list[FileRef]:
        """Files to fetch, after one that had to be waited for; of the first one of a directory none.

        Who waits after a round is over does so since files have changed: another round begins.
        """
        made = self._rounds.get(directory)
        if made is None or made.at >= len(made.names):
            names = list(content)
            start = names.index(name) + 1 if name in content else 0
            self._rounds[directory] = _Round(names[start:] + names[:start])
            if len(self._rounds) > _MOST_DIRECTORIES:
                self._rounds.popitem(last=False)
            return []
        self._rounds.move_to_end(directory)
        made.batch = min(_LARGEST_BATCH, 2 * made.batch) or _FIRST_BATCH
        return _next(made, directory, content)


def _next(made: _Round, directory: bytes, content: Directory) -> list[FileRef]:
    found: list[FileRef] = []
    size = 0
    while made.at < len(made.names) and len(found) < made.batch and size < _MOST_BYTES:
        entry = content.get(made.names[made.at])
        if entry is not None and entry.kind == FILE and 0 < entry.size <= _SMALL:
            found.append(FileRef(join(directory, made.names[made.at]), entry.version, entry.size))
            size += entry.size
        made.at += 1
    return found
