"""What a host sees: the client's tree, with what the host itself wrote over it.

Of each name that the host wrote or removed it is known what of the client's was there then: its *base*. As
long as that still is there, the host's stands; when it is not, the client's wins. That is judged here, and
done elsewhere (`host_changes`). Pure: this knows names, and neither bytes nor a file system.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from .manifest import DIRECTORY, FILE, LINK, Entry, Manifest, join, split

__all__ = [
    "NOTHING",
    "OTHER",
    "WRITTEN",
    "Clash",
    "HostCopy",
    "Overlay",
    "Written",
    "aside_names",
    "base_of",
    "is_within",
]

OTHER: Final = 4
"""The kind of FIFOs and sockets, which only hosts have."""
WRITTEN: Final = -1
"""The version of entries that the host wrote: their attributes are those of its own file."""
NOTHING: Final = 0
"""The base of a name that the client does not have."""
_A_DIRECTORY: Final = -1
_LONGEST_NAME = 255
_ENTRIES = {kind: Entry(kind, 0, 0, 0, WRITTEN) for kind in (FILE, DIRECTORY, LINK, OTHER)}


class HostCopy(NamedTuple):
    """A conflict that the client won. `kept` is where what the host had is now; empty: it had removed it."""

    path: bytes
    kept: bytes


class Written(NamedTuple):
    entry: Entry
    base: int

    @property
    def is_shared(self) -> bool:
        """Whether it is a directory of the client's too: it is of the host's for what is in it."""
        return self.entry.kind == DIRECTORY and self.base == _A_DIRECTORY


Resolution = Literal["aside", "back", "reopen", "merge", "orphan", "forget"]


class Clash(NamedTuple):
    """What has to be done with one name, since the client's is not its base any more.

    aside: the client's is shown, the host's moves to another name
    back: the host removed it, the client has another version: that is shown
    reopen: the host removed this directory, the client put something new in it
    merge: it is a directory on both sides
    orphan: the client removed a directory in which the host had written: that is the host's own now
    forget: both have removed it
    """

    path: bytes
    what: Resolution


@dataclass(slots=True)
class _Layer:
    """What the host did in one directory; of `removed`, the bases."""

    written: dict[bytes, Written] = field(default_factory=dict)
    removed: dict[bytes, int] = field(default_factory=dict)


class Overlay:
    """Has the names of a manifest, as `Manifest` has them, but for what the host did."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._layers: dict[bytes, _Layer] = {}
        self._above: dict[bytes, set[bytes]] = {}
        """Directories that have a layer, or are above one, by the one they are in."""

    @property
    def root(self) -> Entry:
        return self.manifest.root

    def at(self, directory: bytes, name: bytes) -> Entry | None:
        """The entry of a name in a directory that is there."""
        layer = self._layers.get(directory)
        if layer is not None:
            if (written := layer.written.get(name)) is not None:
                return written.entry
            if name in layer.removed:
                return None
        return self.manifest.directories.get(directory, {}).get(name)

    def entry(self, path: bytes) -> Entry | None:
        return self.at(*split(path)) if path else self.root

    def names(self, directory: bytes) -> list[bytes]:
        lower = self.manifest.directories.get(directory, {})
        layer = self._layers.get(directory)
        if layer is None:
            return list(lower)
        names = [name for name in lower if name not in layer.removed]
        return names + [name for name in layer.written if name not in lower]

    def base(self, path: bytes) -> int:
        """What the host's would stand over, were it written now."""
        directory, name = split(path)
        if (layer := self._layers.get(directory)) is not None:
            if (written := layer.written.get(name)) is not None:
                return written.base
            if (removed := layer.removed.get(name)) is not None:
                return removed
        return base_of(self.manifest.entry(path))

    def base_below(self, path: bytes) -> int:
        """What the client has there, whatever the host did."""
        return base_of(self.manifest.entry(path))

    def written(self, path: bytes) -> Written | None:
        layer = self._layers.get(split(path)[0])
        return layer.written.get(split(path)[1]) if layer is not None else None

    def is_written(self, path: bytes) -> bool:
        return not path or self.written(path) is not None

    def below(self, path: bytes) -> Iterator[tuple[bytes, Written]]:
        """All that the host wrote below a directory, each directory before what is in it."""
        waiting = [path]
        while waiting:
            directory = waiting.pop()
            layer = self._layers.get(directory)
            for name, written in list(layer.written.items()) if layer is not None else ():
                inside = join(directory, name)
                if written.entry.kind == DIRECTORY:
                    waiting.append(inside)
                yield inside, written

    def removed(self) -> Iterator[tuple[bytes, int]]:
        """All that the host removed, with their bases."""
        for directory, layer in self._layers.items():
            for name, base in layer.removed.items():
                yield join(directory, name), base

    def lower_below(self, path: bytes) -> Iterator[tuple[bytes, Entry]]:
        """All of the client's that is seen below a directory, each directory before what is in it; of the
        host's the directories too, in which it is."""
        waiting = [path]
        while waiting:
            directory = waiting.pop()
            for name in self.names(directory):
                entry = self.at(directory, name)
                if entry is None:
                    continue
                inside = join(directory, name)
                if entry.kind == DIRECTORY:
                    waiting.append(inside)
                if entry.version != WRITTEN:
                    yield inside, entry

    def set_written(self, path: bytes, kind: int, base: int) -> None:
        layer, name = self._layer(path)
        layer.removed.pop(name, None)
        layer.written[name] = Written(_ENTRIES[kind], base)

    def set_removed(self, path: bytes, base: int) -> None:
        """With no base there is nothing to hide."""
        layer, name = self._layer(path)
        layer.written.pop(name, None)
        if base != NOTHING:
            layer.removed[name] = base
        else:
            self._tidy(path)

    def forget(self, path: bytes) -> None:
        """The host did nothing to this name."""
        layer, name = self._layer(path)
        layer.written.pop(name, None)
        layer.removed.pop(name, None)
        self._tidy(path)

    def moving(self, old: bytes, new: bytes) -> list[tuple[bytes, bytes, Written, int]]:
        """What a rename does to what the host wrote: old and new path, and the base that each will have."""
        found = [(old, written)] if (written := self.written(old)) is not None else []
        found += self.below(old)
        return [
            (path, new + path[len(old) :], written, self.base(new + path[len(old) :]))
            for path, written in found
        ]

    def known(self) -> list[bytes]:
        """All that the host wrote or removed, and what is new in directories that it removed: all that may
        clash with another manifest."""
        paths: list[bytes] = []
        for directory, layer in self._layers.items():
            paths += [join(directory, name) for name in (*layer.written, *layer.removed)]
            paths += [
                join(directory, name)
                for name in self.manifest.directories.get(directory, {})
                if name not in layer.written and name not in layer.removed
            ]
        return paths

    def clashes(self, paths: Iterable[bytes]) -> list[Clash]:
        """What is to be done after these names of the manifest have changed: in this order."""
        found: dict[bytes, Clash] = {}
        for path in paths:
            if not path:
                continue
            clash = self.judged(path)
            if clash is not None:
                found[path] = clash
            elif self.has(path):
                continue
            if self.manifest.entry(path) is not None:
                for above in _above(path):
                    if (hiding := self.hiding(above)) is not None:
                        found.setdefault(above, hiding)
        ordered = sorted(found.values())
        orphans = [clash for clash in ordered if clash.what == "orphan"]
        return [clash for clash in ordered if clash.what != "orphan"] + orphans[::-1]

    def judged(self, path: bytes) -> Clash | None:
        """Of one name by itself; None: nothing is to be done."""
        directory, name = split(path)
        if (layer := self._layers.get(directory)) is None:
            return None
        now = base_of(self.manifest.entry(path))
        if (removed := layer.removed.get(name)) is not None:
            if now == removed:
                return None
            return Clash(path, "forget" if now == NOTHING else "back")
        written = layer.written.get(name)
        if written is None or written.base == now:
            return None
        if written.entry.kind == DIRECTORY and now in (_A_DIRECTORY, NOTHING):
            return Clash(path, "merge" if now == _A_DIRECTORY else "orphan")
        return Clash(path, "aside")

    def has_own_below(self, path: bytes) -> bool:
        """Whether the host has anything of its own in a directory."""
        return any(not one.is_shared for _, one in self.below(path))

    def known_below(self, path: bytes) -> list[bytes]:
        """What the host wrote or removed below a path, the deepest first."""
        found: list[bytes] = []
        waiting = [path]
        while waiting:
            directory = waiting.pop()
            waiting += self._above.get(directory, ())
            if (layer := self._layers.get(directory)) is not None:
                found += [join(directory, name) for name in (*layer.written, *layer.removed)]
        return sorted(found, reverse=True)

    def has(self, path: bytes) -> bool:
        """Whether the host wrote or removed it."""
        directory, name = split(path)
        layer = self._layers.get(directory)
        return layer is not None and (name in layer.written or name in layer.removed)

    def hiding(self, path: bytes) -> Clash | None:
        """Whether a directory of the client's, in which there is something new, is hidden by the host."""
        directory, name = split(path)
        if (layer := self._layers.get(directory)) is None:
            return None
        if name in layer.removed:
            return Clash(path, "reopen")
        written = layer.written.get(name)
        return Clash(path, "aside") if written is not None and written.entry.kind != DIRECTORY else None

    def _layer(self, path: bytes) -> tuple[_Layer, bytes]:
        directory, name = split(path)
        layer = self._layers.get(directory)
        if layer is None:
            layer = self._layers[directory] = _Layer()
            while directory:
                above = split(directory)[0]
                known = self._above.setdefault(above, set())
                if directory in known:
                    break
                known.add(directory)
                directory = above
        return layer, name

    def _tidy(self, path: bytes) -> None:
        directory = split(path)[0]
        layer = self._layers[directory]
        if layer.written or layer.removed:
            return
        del self._layers[directory]
        while directory and directory not in self._layers and directory not in self._above:
            above = split(directory)[0]
            self._above[above].discard(directory)
            if not self._above[above]:
                del self._above[above]
            directory = above


def base_of(entry: Entry | None) -> int:
    if entry is None:
        return NOTHING
    return _A_DIRECTORY if entry.kind == DIRECTORY else entry.version


def aside_names(name: bytes) -> Iterator[bytes]:
    """Names for what the host had under a name, the best first."""
    number = 1
    while True:
        suffix = b".host-copy" if number == 1 else b".host-copy-%d" % number
        yield name[: _LONGEST_NAME - len(suffix)] + suffix
        number += 1


def is_within(path: bytes, directories: Iterable[bytes]) -> bool:
    """Whether a path is one of these, or below one."""
    return any(path == one or path.startswith(one + b"/") for one in directories)


def _above(path: bytes) -> Iterator[bytes]:
    """The directories that a path is in, without the root."""
    while path := split(path)[0]:
        yield path
