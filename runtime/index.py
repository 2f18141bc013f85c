"""The index of a user's meshes, runs and events: one SQLite file that servers read and keepers write.

It is not the only copy: each host's spool and output files hold what happened there, and a keeper that starts
again writes the index anew from them. A name is unique among live meshes, an id for ever.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from .codec import from_json, to_json
from .errors import Conflict, NotFound, Unavailable
from .filesystems import NETWORK_TYPES, file_system_type
from .job_records import JobView
from .lock_holders import lock_holders
from .names import quoted
from .pulse import Glance
from .records import HostEvent, MeshSpec, MeshState, MeshView, MountSpec, RunView

__all__ = ["KEEPER", "Index", "MeshEvent", "Plan", "short_id"]

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_BUSY_S = 10.0
_VERSION = 5
_LATEST_RUNS = 32
# Versions whose tables are as they are now, but for those that are missing.
_BEFORE = (2, 3, 4)
_MAKE_ROOM = (
    "Make room on that disk: release_mesh frees what a mesh's hosts wrote there; or set MILKWEED_STATE_DIR to"
    " a larger one."
)
# Errors that the file's directory can be the cause of.
_OF_THE_DIRECTORY = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meshes (
    mesh TEXT PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, view TEXT NOT NULL,
    created_at REAL NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS live_names ON meshes (name) WHERE state != 'released';
CREATE TABLE IF NOT EXISTS runs (
    run TEXT PRIMARY KEY, mesh TEXT NOT NULL, state TEXT NOT NULL, view TEXT NOT NULL,
    created_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS run_ids (run TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_of_mesh ON runs (mesh);
CREATE TABLE IF NOT EXISTS jobs (
    job TEXT PRIMARY KEY, mesh TEXT NOT NULL, state TEXT NOT NULL, view TEXT NOT NULL,
    created_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS job_ids (job TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS jobs_of_mesh ON jobs (mesh);
CREATE TABLE IF NOT EXISTS mounts (
    mount TEXT PRIMARY KEY, mesh TEXT NOT NULL, spec TEXT NOT NULL, ended INTEGER NOT NULL DEFAULT 0)
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS plans (
    plan TEXT PRIMARY KEY, call TEXT NOT NULL, state TEXT NOT NULL, expires_at REAL NOT NULL)
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS owner (machine TEXT NOT NULL, host TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS events (
    mesh TEXT NOT NULL, host INTEGER NOT NULL, seq INTEGER NOT NULL, event TEXT NOT NULL,
    PRIMARY KEY (mesh, host, seq)) WITHOUT ROWID;
"""


def short_id(length: int = 3) -> str:
    """Random lower-case letters and digits that cannot be mistaken for one another."""
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file it is; None for none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


KEEPER = -1


@dataclass(frozen=True, slots=True)
class MeshEvent:
    """An event with the host it happened on; `KEEPER` is none of them."""

    host: int
    event: HostEvent


@dataclass(frozen=True, slots=True)
class Plan:
    """`call` are a tool and its arguments, `state` what it was looked at; to be confirmed by `plan`."""

    plan: str
    call: str
    state: str
    expires_at: float


class Index:
    """Open as long as its owner; calls are short and safe from many processes (rollback journal, busy wait).

    On a network file system the locks of several machines cannot be relied on: there one machine at a time
    may have live meshes.
    """

    def __init__(self, path: Path, *, file_system: str | None = None, machine: str | None = None) -> None:
        """
        Raises:
            Unavailable: index_unreadable; directory_unusable, disk_full: nothing can be written there;
                index_elsewhere: another machine has live meshes in it.
        """
        self._path = path
        try:
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
            self._db.execute("PRAGMA synchronous = NORMAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version in (0, *_BEFORE):
                self._db.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}PRAGMA user_version = {_VERSION}; COMMIT;")
            elif version != _VERSION:
                why = f"it has version {version}, this Milkweed reads version {_VERSION}"
                raise sqlite3.DatabaseError(why)
        except sqlite3.Error as error:
            raise _unopened(path, error) from None
        self._file = _file_at(path)
        if (file_system or file_system_type(path)) in NETWORK_TYPES:
            self._own(path, machine or _machine_id())

    def _own(self, path: Path, machine: str) -> None:
        with self._transaction():
            row = self._execute("SELECT machine, host FROM owner").fetchone()
            if row is not None and row[0] != machine and self.meshes():
                raise Unavailable(
                    "index_elsewhere",
                    f"{path} is on a network file system, and the machine {row[1]} has live meshes in it",
                    "Release them there, or set MILKWEED_STATE_DIR to a directory of this machine.",
                )
            self._execute("DELETE FROM owner")
            self._execute("INSERT INTO owner (machine, host) VALUES (?, ?)", (machine, os.uname().nodename))

    def close(self) -> None:
        self._db.close()

    def is_there(self) -> bool:
        """False once its file was removed or replaced: nobody will ever read what is written."""
        return _file_at(self._path) == self._file

    def _execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        try:
            return self._db.execute(statement, values)
        except sqlite3.Error as error:
            if _is_busy(error):
                raise _busy(self._path) from None
            is_full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
            raise Unavailable(
                "index_unusable",
                f"the index {self._path} cannot be used: {error}",
                _MAKE_ROOM if is_full else "Look at the disk (milkweed doctor).",
            ) from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.rollback()
            raise

    def claim(self, spec: MeshSpec) -> tuple[MeshView, bool]:
        """The live mesh of that name, or a new row in state `starting`; True when it is new.

        Raises:
            Conflict: a live mesh of that name was allocated with other arguments.
        """
        with self._transaction():
            if (found := self.check_claim(spec)) is not None:
                return found, False
            mesh = self._unused("meshes", "mesh", f"mesh-{spec.name}")
            view = MeshView(mesh=mesh, spec=spec, state="starting", created_at=time.time())
            self._execute(
                "INSERT INTO meshes (mesh, name, state, view, created_at) VALUES (?, ?, ?, ?, ?)",
                (mesh, spec.name, view.state, json.dumps(to_json(view)), view.created_at),
            )
            return view, True

    def check_claim(self, spec: MeshSpec) -> MeshView | None:
        """The live mesh of that name, None where the name is free.

        Raises:
            Conflict: name_in_use: it was allocated with other arguments.
        """
        row = self._execute(
            "SELECT view FROM meshes WHERE name = ? AND state != 'released'", (spec.name,)
        ).fetchone()
        if row is None:
            return None
        found = from_json(MeshView, json.loads(row[0]))
        if found.spec != spec:
            raise Conflict(
                "name_in_use",
                f"{found.mesh} has the name {spec.name!r} with {_difference(found.spec, spec)}",
                f"Use {found.mesh}, release it first (release_mesh), or take another name.",
            )
        return found

    def put_mesh(self, view: MeshView) -> None:
        """Writes a mesh's state; a released mesh stays released."""
        self._execute(
            "UPDATE meshes SET state = ?, view = ?"
            " WHERE mesh = ? AND (state != 'released' OR ? = 'released')",
            (view.state, json.dumps(to_json(view)), view.mesh, view.state),
        )

    def mesh(self, mesh: str) -> MeshView:
        """By id, or by the name of a live mesh.

        Raises:
            NotFound: mesh_not_found, naming the live ones, or how the last of that name ended.
        """
        row = self._execute(
            "SELECT view FROM meshes WHERE mesh = ? OR (name = ? AND state != 'released')", (mesh, mesh)
        ).fetchone()
        if row is None:
            live = [view.mesh for view in self.meshes()]
            known = f"meshes: {', '.join(live[:8])}" if live else "there is none"
            last = self._execute(
                "SELECT view FROM meshes WHERE name = ? ORDER BY created_at DESC LIMIT 1", (mesh,)
            ).fetchone()
            if last is not None:
                known += f"; {from_json(MeshView, json.loads(last[0])).how_it_ended}"
            raise NotFound(
                "mesh_not_found",
                f"no mesh '{quoted(mesh)}'; {known}",
                "Call list_meshes." if live else "Call allocate_mesh.",
            )
        return from_json(MeshView, json.loads(row[0]))

    def meshes(self, *, released: bool = False) -> tuple[MeshView, ...]:
        """Live meshes, oldest first; with `released` the released ones too."""
        where = "" if released else "WHERE state != 'released'"
        rows = self._execute(f"SELECT view FROM meshes {where} ORDER BY created_at").fetchall()
        return tuple(from_json(MeshView, json.loads(row[0])) for row in rows)

    def new_run_id(self) -> str:
        """An id that no run has or ever will have but the one it is for."""
        with self._transaction():
            run = self._unused("run_ids", "run", "run")
            self._execute("INSERT INTO run_ids (run) VALUES (?)", (run,))
            return run

    def _unused(self, table: str, column: str, prefix: str, length: int = 3) -> str:
        for attempt in itertools.count():
            # Three letters are 29,791 ids; a crowded index gets longer ones.
            name = f"{prefix}-{short_id(length + attempt // 8)}"
            if not self._execute(f"SELECT 1 FROM {table} WHERE {column} = ?", (name,)).fetchone():
                return name
        raise AssertionError("unreachable")

    def put_run(self, view: RunView) -> None:
        self._execute(
            "INSERT INTO runs (run, mesh, state, view, created_at) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (run) DO UPDATE SET state = excluded.state, view = excluded.view",
            (view.run, view.mesh, view.state, json.dumps(to_json(view)), view.created_at),
        )

    def run(self, run: str) -> RunView:
        """
        Raises:
            NotFound: run_not_found, naming the latest ones, or those that must be meant.
        """
        row = self._execute("SELECT view FROM runs WHERE run = ?", (run,)).fetchone()
        if row is None:
            if self._execute("SELECT 1 FROM jobs WHERE job = ?", (run,)).fetchone() is not None:
                what = f"{run} is a job; each attempt of its replicas is a run of its own"
                raise NotFound("run_not_found", what, f"replica_status(job={run!r}) names them.")
            attempts = self._execute(
                "SELECT run FROM runs WHERE substr(run, 1, ?) = ? ORDER BY created_at DESC LIMIT 5",
                (len(run) + 1, f"{run}."),
            ).fetchall()
            if attempts:
                what = (
                    f"no run '{quoted(run)}'; its attempts, latest first: {', '.join(r[0] for r in attempts)}"
                )
                raise NotFound("run_not_found", what, "Name one of them.")
            latest = [r[0] for r in self._execute("SELECT run FROM runs ORDER BY created_at DESC LIMIT 5")]
            known = f"latest runs: {', '.join(latest)}" if latest else "nothing was run yet"
            raise NotFound(
                "run_not_found",
                f"no run '{quoted(run)}'; {known}",
                "list_meshes, then list_runs(mesh=...), tell what there is.",
            )
        return from_json(RunView, json.loads(row[0]))

    def runs(self, mesh: str, *, limit: int = 100) -> tuple[RunView, ...]:
        """The latest runs of a mesh, newest first."""
        rows = self._execute(
            "SELECT view FROM runs WHERE mesh = ? ORDER BY created_at DESC LIMIT ?", (mesh, limit)
        ).fetchall()
        return tuple(from_json(RunView, json.loads(row[0])) for row in rows)

    def globs_to_keep(self, mesh: str) -> tuple[str, ...]:
        """Of all runs and jobs that the mesh ever had."""
        rows = self._execute(
            "SELECT json_extract(view, '$.keep') FROM runs WHERE mesh = ? UNION"
            " SELECT json_extract(view, '$.request.keep') FROM jobs WHERE mesh = ?",
            (mesh, mesh),
        ).fetchall()
        return tuple(sorted({glob for row in rows for glob in json.loads(row[0] or "[]")}))

    def unfinished_runs(self, mesh: str) -> tuple[RunView, ...]:
        """Oldest first."""
        rows = self._execute(
            "SELECT view FROM runs WHERE mesh = ? AND state IN ('queued', 'running') ORDER BY created_at",
            (mesh,),
        ).fetchall()
        return tuple(from_json(RunView, json.loads(row[0])) for row in rows)

    def add_mount(
        self,
        mesh: str,
        source: str,
        path: str,
        mode: str,
        hosts: tuple[int, ...] = (),
        made: tuple[str, ...] = (),
    ) -> MountSpec:
        """A mount with an id that no other one has or ever will have."""
        with self._transaction():
            spec = MountSpec(self._unused("mounts", "mount", "mount"), source, path, mode, hosts, made)
            self._execute(
                "INSERT INTO mounts (mount, mesh, spec) VALUES (?, ?, ?)",
                (spec.mount, mesh, json.dumps(to_json(spec))),
            )
            return spec

    def end_mount(self, mount: str) -> None:
        self._execute("UPDATE mounts SET ended = 1 WHERE mount = ?", (mount,))

    def mounts(self, mesh: str) -> tuple[MountSpec, ...]:
        """Those of a mesh that were not ended."""
        rows = self._execute("SELECT spec FROM mounts WHERE mesh = ? AND NOT ended ORDER BY mount", (mesh,))
        return tuple(from_json(MountSpec, json.loads(row[0])) for row in rows)

    def mesh_of_mount(self, mount: str) -> str:
        """
        Raises:
            NotFound: mount_not_found, or it has ended.
        """
        row = self._execute("SELECT mesh, ended FROM mounts WHERE mount = ?", (mount,)).fetchone()
        if row is None or row[1]:
            what = f"no mount {quoted(mount)}" if row is None else f"{mount} was unmounted"
            raise NotFound("mount_not_found", what, "mesh_status names the mounts of a mesh.")
        return str(row[0])

    def add_plan(self, call: str, state: str, expires_at: float) -> Plan:
        """Of what a call would do to what there is, for the caller to confirm."""
        with self._transaction():
            self._execute("DELETE FROM plans WHERE expires_at < ?", (time.time(),))
            plan = Plan(self._unused("plans", "plan", "plan", 5), call, state, expires_at)
            self._execute("INSERT INTO plans VALUES (?, ?, ?, ?)", (plan.plan, call, state, expires_at))
            return plan

    def take_plan(self, plan: str) -> Plan | None:
        """Nobody else is given it after that; None: it was taken, is too old, or never was."""
        row = self._execute(
            "DELETE FROM plans WHERE plan = ? AND expires_at >= ? RETURNING plan, call, state, expires_at",
            (plan, time.time()),
        ).fetchall()
        return Plan(*row[0]) if row else None

    def new_job_id(self) -> str:
        """An id that no job has or ever will have but the one it is for."""
        with self._transaction():
            job = self._unused("job_ids", "job", "job")
            self._execute("INSERT INTO job_ids (job) VALUES (?)", (job,))
            return job

    def put_job(self, view: JobView) -> None:
        self._execute(
            "INSERT INTO jobs (job, mesh, state, view, created_at) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (job) DO UPDATE SET state = excluded.state, view = excluded.view",
            (view.job, view.mesh, view.state, json.dumps(to_json(view)), view.created_at),
        )

    def job(self, job: str) -> JobView:
        """
        Raises:
            NotFound: job_not_found, naming the latest ones.
        """
        row = self._execute("SELECT view FROM jobs WHERE job = ?", (job,)).fetchone()
        if row is None:
            latest = [r[0] for r in self._execute("SELECT job FROM jobs ORDER BY created_at DESC LIMIT 5")]
            known = f"latest jobs: {', '.join(latest)}" if latest else "there was none yet"
            raise NotFound("job_not_found", f"no job '{quoted(job)}'; {known}", "Call start_replicas.")
        return from_json(JobView, json.loads(row[0]))

    def jobs(self, mesh: str, *, unfinished: bool = False) -> tuple[JobView, ...]:
        """The latest jobs of a mesh, newest first; `unfinished`: only those that are not over."""
        where = " AND state IN ('starting', 'running', 'degraded')" if unfinished else ""
        rows = self._execute(
            f"SELECT view FROM jobs WHERE mesh = ?{where} ORDER BY created_at DESC LIMIT 100", (mesh,)
        ).fetchall()
        return tuple(from_json(JobView, json.loads(row[0])) for row in rows)

    def add_events(self, mesh: str, host: int, events: tuple[HostEvent, ...]) -> None:
        """Events already there (same host and seq) are left as they are."""
        with self._transaction():
            for event in events:
                self._execute(
                    "INSERT OR IGNORE INTO events (mesh, host, seq, event) VALUES (?, ?, ?, ?)",
                    (mesh, host, event.seq, json.dumps(to_json(event))),
                )

    def add_keeper_event(self, mesh: str, kind: str, *, run: str = "", detail: str = "") -> None:
        """An event that no host could tell."""
        with self._transaction():
            seq = self.last_seq(mesh, KEEPER) + 1
            event = HostEvent(seq, time.time(), kind, run, detail=detail)
            self._execute(
                "INSERT INTO events (mesh, host, seq, event) VALUES (?, ?, ?, ?)",
                (mesh, KEEPER, seq, json.dumps(to_json(event))),
            )

    def last_seq(self, mesh: str, host: int) -> int:
        row = self._execute(
            "SELECT max(seq) FROM events WHERE mesh = ? AND host = ?", (mesh, host)
        ).fetchone()
        return row[0] or 0

    def events(self, mesh: str, limit: int) -> tuple[MeshEvent, ...]:
        """The latest events of all hosts, oldest first."""
        rows = self._execute(
            "SELECT host, event FROM events WHERE mesh = ? ORDER BY json_extract(event, '$.at') DESC LIMIT ?",
            (mesh, limit),
        ).fetchall()
        return tuple(MeshEvent(host, from_json(HostEvent, json.loads(text))) for host, text in reversed(rows))

    def version(self) -> tuple[int, int]:
        """Another one after every change, whoever made it; cheap."""
        return self._execute("PRAGMA data_version").fetchone()[0], self._db.total_changes

    def glance(self) -> Glance:
        """What is compared with a later one to see what changed."""
        live = self._execute("SELECT mesh, name, view FROM meshes WHERE state != 'released'").fetchall()
        # The latest ones too when they are over: one may begin and end between two looks.
        runs = self._execute(
            "SELECT run, view FROM runs WHERE state IN ('queued', 'running') UNION"
            " SELECT run, view FROM (SELECT run, view FROM runs ORDER BY created_at DESC LIMIT ?)",
            (_LATEST_RUNS,),
        ).fetchall()
        return Glance(
            meshes={mesh: view for mesh, _, view in live},
            names={name: mesh for mesh, name, _ in live},
            runs=dict(runs),
            events={mesh: self._last_event(mesh) for mesh, _, _ in live},
        )

    def _last_event(self, mesh: str) -> int:
        """The sum of the hosts' last numbers: it grows with every event."""
        row = self._execute(
            "SELECT sum(last) FROM (SELECT max(seq) AS last FROM events WHERE mesh = ? GROUP BY host)",
            (mesh,),
        ).fetchone()
        return row[0] or 0

    def set_state(self, mesh: str, state: MeshState, reason: str) -> None:
        """For a mesh whose keeper is gone for good."""
        self.put_mesh(replace(self.mesh(mesh), state=state, reason=reason))


def _unopened(path: Path, error: sqlite3.Error) -> Unavailable:
    """Whether the index itself is at fault, or the directory that it is in."""
    if _is_busy(error):
        return _busy(path)
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_DIRECTORY:
        try:
            with tempfile.TemporaryFile(dir=path.parent) as probe:
                probe.write(bytes(4096))
        except OSError as denied:
            full = denied.errno in (errno.ENOSPC, errno.EDQUOT)
            return Unavailable(
                "disk_full" if full else "directory_unusable",
                f"the directory {path.parent} is not writable: {denied.strerror}",
                f"{'Make room on that disk' if full else 'Make it writable'}, or set MILKWEED_STATE_DIR.",
            )
    return Unavailable(
        "index_unreadable",
        f"the index {path} cannot be opened: {error}",
        "Move it away (`milkweed doctor` says how); hosts keep their spools.",
    )


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _busy(path: Path) -> Unavailable:
    holders = lock_holders(path)
    who = ", ".join(map(str, holders[:3])) or "another process"
    stopped = [str(one.pid) for one in holders if one.stopped]
    mend = f"Let it go on (kill -CONT {' '.join(stopped)}) or end it." if stopped else "Call again."
    return Unavailable("index_busy", f"the index {path} has been locked for {_BUSY_S:.0f} s by {who}", mend)


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return os.uname().nodename


def _difference(live: MeshSpec, asked: MeshSpec) -> str:
    pairs = [
        f"{name}={quoted(repr(getattr(live, name)))} (asked: {quoted(repr(getattr(asked, name)))})"
        for name in MeshSpec.__dataclass_fields__
        if getattr(live, name) != getattr(asked, name)
    ]
    return ", ".join(pairs)
