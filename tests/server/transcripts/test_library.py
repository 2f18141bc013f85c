"""Transcripts that lie at hand."""

import os
from pathlib import Path

import pytest

from milkweed.runtime.errors import InvalidArgument, NotFound
from milkweed.server.transcripts.library import Library

HEADER = '{"kind": "header", "format": 1, "title": "%s"}\n'


def put(file: Path, title: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HEADER % title)
    return file


def test_folders_files_and_the_recording_are_found(tmp_path: Path) -> None:
    put(tmp_path / "here/transcripts/one/session.jsonl", "one")
    put(tmp_path / "here/transcripts/two.jsonl", "two")
    put(tmp_path / "there/transcripts/three.jsonl", "three")
    (tmp_path / "here/transcripts/notes.md").write_text("")
    (tmp_path / "here/transcripts/empty").mkdir()
    now = put(tmp_path / "now.jsonl", "now")
    library = Library(recording=now, beside=tmp_path / "here")
    workspaces = [str(tmp_path / "there"), str(tmp_path / "nowhere"), str(tmp_path / "here")]
    assert library.names(workspaces) == ["now", "one", "three", "two"]
    assert library.read("three", workspaces).startswith("# three\n")


def test_of_two_with_one_name_that_beside_the_server_is_read(tmp_path: Path) -> None:
    put(tmp_path / "a/transcripts/same.jsonl", "of the workspace")
    put(tmp_path / "b/transcripts/same.jsonl", "beside the server")
    library = Library(beside=tmp_path / "b")
    assert library.read("same", [str(tmp_path / "a")]).startswith("# beside the server\n")


def test_nothing_outside_is_read(tmp_path: Path) -> None:
    secret = put(tmp_path / "secret.jsonl", "secret")
    folder = tmp_path / "w/transcripts"
    folder.mkdir(parents=True)
    (folder / "link.jsonl").symlink_to(secret)
    library = Library()
    for name in ("../../secret", "secret", "link", "", "."):
        with pytest.raises(NotFound, match="transcript_not_found.*there is none"):
            library.read(name, [str(tmp_path / "w")])


def test_what_is_too_large_or_no_transcript_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "transcripts"
    with put(folder / "large.jsonl", "large").open("r+b") as file:
        os.ftruncate(file.fileno(), 17 * 1024 * 1024)
    (folder / "junk.jsonl").write_bytes(b"\xff\x00\n")
    library = Library(beside=tmp_path)
    with pytest.raises(InvalidArgument, match=r"resource_too_large: large\.jsonl has 18 MB"):
        library.read("large")
    with pytest.raises(InvalidArgument, match="transcript_unreadable"):
        library.read("junk")
