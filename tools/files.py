"""The toolset `files`: what is on the hosts' disks."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ..runtime.errors import InvalidArgument, MilkweedError, NotFound
from ..runtime.fetching import Fetched
from ..runtime.file_records import FileDigest, FileEntry, FileListing, FileText
from ..runtime.mesh import format_ranks
from ..runtime.names import printable, quoted
from ..runtime.tree_places import is_at_or_below
from .arguments import Hosts, MeshId, Why
from .mounts import gather_mount, mount_directory, unmount
from .registry import Call, Text, tool
from .results import FetchResult
from .selection import select_hosts
from .verdicts import clean
from .words import clip, size_in_words

if TYPE_CHECKING:
    from ..runtime.client import Mesh

__all__ = [
    "fetch_files",
    "gather_mount",
    "list_remote_files",
    "mount_directory",
    "read_remote_file",
    "unmount",
]

_LIST_BYTES = 7500
_SKIPPED_SHOWN = 10
# Of a call's 45 s, what is for copying.
_FETCH_S = 35.0
_NAME_MAX = 200

RemotePath = Annotated[str, Field(min_length=1, description="absolute, or relative to the workspace")]


@tool("files", read_only=True)
async def list_remote_files(
    call: Call,
    mesh: MeshId,
    path: RemotePath = ".",
    hosts: Hosts = None,
    pattern: Annotated[str | None, Field(description="glob below path: *.pt, **/*.log")] = None,
    limit: Annotated[int, Field(ge=1, le=1000, description="entries of each host")] = 200,
) -> Text:
    """Files in a directory of the hosts. An entry that all hosts have alike is shown once; others with the
    hosts that have them."""
    found = await call.meshes.get(mesh)
    answers = await found.list_files(path, hosts=await _choose(found, hosts), pattern=pattern, limit=limit)
    return Text(_listing(path, answers))


@tool("files", read_only=True)
async def read_remote_file(
    call: Call,
    mesh: MeshId,
    path: RemotePath,
    hosts: Annotated[
        str,
        Field(
            description='the first that has it is read, the others are compared with it: "0", "0-3", "all"'
        ),
    ] = "0",
    offset: Annotated[int, Field(ge=0, description="in bytes")] = 0,
    limit: Annotated[int | None, Field(ge=1, description="bytes; default: what fits")] = None,
    tail: Annotated[int | None, Field(ge=1, le=100_000, description="last lines")] = None,
    grep: Annotated[
        str | None, Field(description="only lines with this regular expression (RE2; (?i) for any case)")
    ] = None,
    max_bytes: Annotated[
        int, Field(ge=500, le=65_536), Why("more does not fit an answer: read on by offset")
    ] = 7000,
) -> Text:
    """A part of a text file of one host, as it is there now, and which other hosts have another one. Of a
    binary file: what it is and its first bytes."""
    found = await call.meshes.get(mesh)
    chosen = await _choose(found, hosts)
    digests = await found.file_digests(path, hosts=chosen) if len(chosen) > 1 else {}
    having = [host for host in chosen if not isinstance(digests.get(host), MilkweedError)]
    host = (having or chosen)[0]
    try:
        file = await found.read_file(
            path, host=host, offset=offset, limit=limit, tail=tail, grep=grep, max_bytes=max_bytes
        )
    except NotFound as error:
        if error.code != "file_not_found" or (await found.view()).spec.hosts == 1:
            raise
        others = 'hosts="all" reads it on the first host that has it. ' if len(chosen) == 1 else ""
        where = f"{_hosts(chosen)}: {error.cause}"
        raise NotFound("file_not_found", where, f"{others}{error.next_step}") from None
    lines = [_file_header(file, host)]
    if len(chosen) > 1:
        lines.append(_comparison(host, digests))
    lines.append(clean(file.text).removesuffix("\n") or "(nothing)")
    if file.next is not None:
        lines.append(f"[there is more; to read on: offset={file.next}]")
    return Text("\n".join(lines))


@tool("files", idempotent=True)
async def fetch_files(
    call: Call,
    mesh: MeshId,
    path: RemotePath,
    destination: Annotated[
        str, Field(min_length=1, description="local directory; files go to destination/HOST/...")
    ],
    hosts: Hosts = None,
) -> FetchResult:
    """Copies a file or a directory of hosts to this machine, where it outlives the mesh. Files that are there
    already are kept if they are the same, and never overwritten if not. What takes too long for one call is
    said as left: the same call again goes on from there."""
    target = _check_destination(destination)
    found = await call.meshes.get(mesh)
    named = await _choose(found, hosts)
    chosen, without = await _having(found, path, named)
    began = time.monotonic()
    await call.report(0, None, f"fetching {quoted(path)} from hosts {format_ranks(chosen)}")
    fetched = await found.fetch(path, hosts=chosen, destination=target, report=call.report, within_s=_FETCH_S)
    copied = [one for one in fetched if one.state == "copied"]
    skipped = [one for one in fetched if one.state == "skipped"]
    left = sum(one.state == "left" for one in fetched)
    again = f"fetch_files(mesh={found.id!r}, path={path!r}, destination={target!r}) goes on." if left else ""
    nothing = "" if fetched else f"list_remote_files(mesh={found.id!r}, path={path!r}) tells what is there."
    return FetchResult(
        destination=target,
        files=len(copied),
        bytes=sum(one.size for one in copied),
        unchanged=sum(one.state == "unchanged" for one in fetched),
        left=left,
        skipped=[_skipped(one) for one in skipped[:_SKIPPED_SHOWN]],
        not_fetched=_without(without),
        hosts=format_ranks(chosen),
        elapsed_s=round(time.monotonic() - began, 2),
        note=_seen_by_hosts((await found.view()).spec.workspace, target),
        next=again or nothing,
    )


async def _having(
    mesh: Mesh, path: str, hosts: tuple[int, ...]
) -> tuple[tuple[int, ...], dict[int, MilkweedError]]:
    """Those that have a path, and why the others have not.

    Raises:
        MilkweedError: the first one's, where none has it.
    """
    if len(hosts) < 2:
        return hosts, {}
    answers = await mesh.list_files(path, hosts=hosts, pattern=None, limit=1)
    errors = {host: answer for host, answer in answers.items() if isinstance(answer, MilkweedError)}
    having = tuple(host for host in hosts if host not in errors)
    if not having:
        raise errors[hosts[0]]
    return having, errors


def _without(errors: Mapping[int, MilkweedError]) -> list[str]:
    """A line for hosts that say the same, without what to do: the others' files are here."""
    causes: dict[str, list[int]] = {}
    for host, error in errors.items():
        cause = error.cause.split(";")[0] if error.code == "file_not_found" else error.cause
        causes.setdefault(clip(cause, 300), []).append(host)
    return [f"{_hosts(members)}: {cause}" for cause, members in causes.items()][:_SKIPPED_SHOWN]


def _seen_by_hosts(workspace: str, destination: str) -> str:
    """That hosts see what was copied into their workspace."""
    if not is_at_or_below(os.path.realpath(destination), os.path.realpath(workspace)):
        return ""
    return "it is in the workspace: hosts see it too; .milkweedignore leaves it out"


def _skipped(one: Fetched) -> str:
    return clip(f"host {one.host}: {printable(one.path)}: {one.reason}", 200)


async def _choose(mesh: Mesh, text: str | None) -> tuple[int, ...]:
    """Hosts that a selection names, sorted."""
    return select_hosts(text, (await mesh.view()).spec.hosts)


def _check_destination(destination: str) -> str:
    path = os.path.abspath(os.path.expanduser(destination))  # links stay as they are named
    if why := _no_directory(path):
        raise InvalidArgument(
            "invalid_path", f"destination '{quoted(path)}' {why}", "Name a directory, new or not."
        )
    return path


def _no_directory(path: str) -> str:
    """Why there can be no directory of that path; empty where there is one or can be."""
    try:
        return "" if stat.S_ISDIR(os.stat(path).st_mode) else "is no directory"
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        return f"cannot be: {(isinstance(error, OSError) and error.strerror) or 'it is no path'}"


def _listing(path: str, answers: Mapping[int, FileListing | MilkweedError]) -> str:
    listings = {host: answer for host, answer in answers.items() if isinstance(answer, FileListing)}
    errors = {host: answer for host, answer in answers.items() if isinstance(answer, MilkweedError)}
    if not listings and len({str(error) for error in errors.values()}) == 1:
        raise next(iter(errors.values()))
    holders: dict[tuple[object, ...], list[int]] = {}
    newest: dict[tuple[object, ...], FileEntry] = {}
    for host, listing in listings.items():
        for entry in listing.entries:
            key = _same(entry)
            holders.setdefault(key, []).append(host)
            if key not in newest or entry.modified_at > newest[key].modified_at:
                newest[key] = entry
    shown = (
        path
        if len({listing.path for listing in listings.values()}) != 1
        else next(iter(listings.values())).path
    )
    head = f"{quoted(shown, _NAME_MAX)}, {_hosts(list(listings))}:"
    entries = [
        _entry_line(newest[key])
        + (f"  [{_hosts(holders[key])}]" if len(holders[key]) < len(listings) else "")
        for key in sorted(newest, key=lambda key: newest[key].name)
    ]
    notes = [f"{_hosts([host])}: {clip(str(error), 300)}" for host, error in list(errors.items())[:5]]
    notes += [f"[{note}]" for note in sorted({listing.note for listing in listings.values() if listing.note})]
    left_out = max((listing.left_out for listing in listings.values()), default=0)
    return _bounded([head, *(entries or ["(empty)"])], notes, left_out)


def _bounded(lines: Sequence[str], notes: Sequence[str], left_out: int) -> str:
    room = _LIST_BYTES - sum(len(note.encode("utf-8", "replace")) + 1 for note in notes)
    kept: list[str] = []
    for line in lines:
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            break
        kept.append(line)
    left_out += len(lines) - len(kept)
    more = [f"[{left_out:,} more; narrow by pattern, or list a directory below]"] if left_out else []
    return "\n".join([*kept, *more, *notes])


def _same(entry: FileEntry) -> tuple[object, ...]:
    size = entry.size if entry.kind == "file" else 0
    return (entry.name, entry.kind, size, entry.target, entry.error)


def _entry_line(entry: FileEntry) -> str:
    name = quoted(entry.name, _NAME_MAX)
    when = datetime.fromtimestamp(entry.modified_at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if entry.error:
        return f"{name}  ({entry.error})"
    if entry.kind == "file":
        return f"{name}  {size_in_words(entry.size)}  {when}"
    if entry.kind == "directory":
        return f"{name}/"
    return f"{name} -> {quoted(entry.target, 100)}" if entry.kind == "link" else f"{name}  ({entry.kind})"


def _hosts(hosts: Sequence[int]) -> str:
    return f"host{'s' if len(hosts) != 1 else ''} {format_ranks(hosts) or 'none'}"


def _file_header(file: FileText, host: int) -> str:
    note = f", {file.note}" if file.note else ""
    return f"[{quoted(file.path, 300)} on host {host}, {size_in_words(file.size)}{note}]"


def _comparison(host: int, digests: Mapping[int, FileDigest | MilkweedError]) -> str:
    own = digests.get(host)
    partial = isinstance(own, FileDigest) and own.partial
    same: list[int] = []
    other: list[int] = []
    missing: list[int] = []
    for number, digest in digests.items():
        if number == host:
            continue
        if isinstance(digest, MilkweedError):
            missing.append(number)
        elif isinstance(own, FileDigest) and (digest.size, digest.sha256) == (own.size, own.sha256):
            same.append(number)
        else:
            other.append(number)
    alike = "the same size, head and tail" if partial else "the same"
    kinds = ((alike, same), ("another file", other), ("not readable", missing))
    parts = [f"{words} on {_hosts(members)}" for words, members in kinds if members]
    return f"[{'; '.join(parts) or 'no other host'}]"
