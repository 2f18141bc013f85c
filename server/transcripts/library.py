"""Transcripts that lie at hand: in the folders `transcripts` of workspaces and of where the server was started,
and the one that is being recorded. Blocking."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ...runtime.errors import InvalidArgument, NotFound
__all__ = ["Library"]

_FOLDER = "transcripts"
_SESSION = "session.jsonl"
_MOST = 200
_MOST_BYTES = 16 * 1024 * 1024


class Library:
    """Found anew at each look. A name is that of a file without `.jsonl`, or of a folder with a session."""

    def __init__(self, recording: Path | None = None, beside: Path | None = None) -> None:
        """`recording`: the file that is being written; `beside`: a directory that may have a folder of them."""
        self._recording = recording
        self._beside = beside

    def names(self, workspaces: Iterable[str] = ()) -> list[str]:
        return sorted(self._files(workspaces))[:_MOST]

    def read(self, name: str, workspaces: Iterable[str] = ()) -> str:
        """The session as Markdown.

        Raises:
            NotFound: transcript_not_found. InvalidArgument: transcript_unreadable.
        """
        files = self._files(workspaces)
        if name not in files:
            known = f"transcripts: {', '.join(sorted(files)[:8])}" if files else "there is none"
            raise NotFound(
                "transcript_not_found",
                f"no transcript '{name[:60]}'; {known}",
                "resources/list names them; milkweed serve --record FILE makes one.",
            )
        from .format import parse
        from .text import as_markdown

        return as_markdown(parse(_text_of(files[name]), name))

    def _files(self, workspaces: Iterable[str]) -> dict[str, Path]:
        """The first of each name counts: what is recorded, then what is beside the server."""
        found: dict[str, Path] = {}
        if self._recording is not None and self._recording.is_file():
            found[self._recording.stem] = self._recording
        places = [*([self._beside] if self._beside is not None else []), *map(Path, workspaces)]
        for place in dict.fromkeys(places):
            for name, file in _sessions(place / _FOLDER):
                found.setdefault(name, file)
        return found


def _sessions(folder: Path) -> Iterator[tuple[str, Path]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            session = path / _SESSION if path.is_dir() else path
            if session.suffix == ".jsonl" and session.is_file() and not session.is_symlink():
                yield path.name.removesuffix(".jsonl"), session


def _text_of(file: Path) -> str:
    try:
        size = file.stat().st_size
        if size > _MOST_BYTES:
            raise InvalidArgument(
                "resource_too_large",
                f"{file.name} has {size / 1e6:.0f} MB; at most {_MOST_BYTES >> 20} MiB are shown",
                f"Open {file} on the machine of this server.",
            )
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidArgument(
            "transcript_unreadable", f"{file} cannot be read: {error.strerror}", "See to its permissions."
        ) from None
