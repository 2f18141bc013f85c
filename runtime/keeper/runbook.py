"""The runs of one mesh: their views, kept current from host events, and those who wait for a change."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from functools import partial

import anyio

from ..errors import NotFound
from ..index import Index
from ..records import EndReason, Exit, HostEvent, RunState, RunView
from .journal import Journal
from .lifecycle import EndRanks, fold, is_over, lose_host, peers_to_end, was_on

__all__ = ["RunBook"]

_REMEMBERED = 50
_WARNINGS = 5
_JUST_NOW_S = 15.0


@dataclass(slots=True)
class _Entry:
    view: RunView
    changed: anyio.Event = field(default_factory=anyio.Event)
    peers_told: bool = False


class RunBook:
    """Synchronous but for the waiting. Runs that were under way when an earlier keeper died are taken up."""

    def __init__(self, mesh: str, index: Index, journal: Journal) -> None:
        self._mesh = mesh
        self._index = index
        self._journal = journal
        self._to_end: deque[EndRanks] = deque()
        self._to_end_grew = anyio.Event()
        self._entries: dict[str, _Entry] = {}
        for view in index.unfinished_runs(mesh):
            self._entries[view.run] = _Entry(view)
            self._note_peers(self._entries[view.run])

    def add(self, view: RunView) -> None:
        """
        Raises:
            Unavailable: index_unusable; a run that cannot be recorded must not start.
        """
        self._index.put_run(view)
        self._entries[view.run] = _Entry(view)
        self._forget_old()

    def adopt(self, view: RunView) -> None:
        """A run that a host started by itself; one that is known stays as it is."""
        if view.run in self._entries:
            return
        try:
            self._index.run(view.run)
        except NotFound:
            self._entries[view.run] = _Entry(view)
            self._journal.write(("run", view.run), partial(self._index.put_run, view))
            self._forget_old()

    def _forget_old(self) -> None:
        over = [run for run, entry in self._entries.items() if is_over(entry.view)]
        for run in over[:-_REMEMBERED]:
            del self._entries[run]

    def view(self, run: str) -> RunView:
        """
        Raises:
            NotFound: run_not_found.
        """
        entry = self._entries.get(run)
        return entry.view if entry else self._index.run(run)

    def unfinished(self) -> tuple[RunView, ...]:
        return tuple(entry.view for entry in self._entries.values() if not is_over(entry.view))

    def take(self, host: int, events: tuple[HostEvent, ...]) -> None:
        """Folds a host's new events into the runs they speak of."""
        self._journal.write(
            ("events", host, events[-1].seq), partial(self._index.add_events, self._mesh, host, events)
        )
        touched: dict[str, RunView] = {}
        for event in events:
            if event.run in self._entries:
                touched[event.run] = fold(touched.get(event.run, self._entries[event.run].view), event, host)
        for run, view in touched.items():
            self._set(run, view)
        for event in events:
            if event.kind in ("read_failed", "mount_lost"):
                self._warn_those_on(host, event)

    def _warn_those_on(self, host: int, event: HostEvent) -> None:
        warning = f"host {host}: {event.detail}"
        for run, entry in list(self._entries.items()):
            if was_on(entry.view, host, event.at) and warning not in entry.view.warnings:
                self.warn(run, warning)

    def not_started(self, run: str, host: int, why: str, at: float) -> None:
        """A host refused its part of a run after all had agreed to it."""
        view = self._entries[run].view
        for rank in view.ranks:
            if rank.host == host:
                event = HostEvent(0, at, "rank_failed_to_start", run, rank.rank, exit=Exit(error=why))
                view = fold(view, event)
        self._set(run, view)

    def host_lost(self, host: int, at: float) -> None:
        for run, entry in list(self._entries.items()):
            self._set(run, lose_host(entry.view, host, at))

    def explain(self, run: str, reason: str) -> None:
        """Notes why a run will end, before it does; the first reason stays."""
        entry = self._entries[run]
        if not entry.view.reason:
            self._set(run, replace(entry.view, reason=reason))

    def blame(self, why: str, at: float) -> None:
        """Notes why hosts were lost, where runs were lost with them a moment ago."""
        for run, entry in list(self._entries.items()):
            view = entry.view
            if view.state == "lost" and (view.ended_at or 0.0) >= at - _JUST_NOW_S and why not in view.reason:
                self._set(run, replace(view, reason=f"{view.reason}: {why}"))

    def warn(self, run: str, warning: str) -> None:
        """Adds to the warnings of a run, of which the first few stay. One that is not known has none."""
        entry = self._entries.get(run)
        if entry is not None and len(entry.view.warnings) < _WARNINGS:
            self._set(run, replace(entry.view, warnings=(*entry.view.warnings, warning)))

    def close(self, reason: EndReason, at: float, why: str = "") -> None:
        """Whatever has not ended by now is lost with the mesh; `why`, where it was taken from outside."""
        for entry in list(self._entries.values()):
            if not is_over(entry.view):
                state: RunState = "lost" if reason == "host_ended" else "cancelled"
                words = "the lease ended" if reason == "lease_ended" else "the mesh was released"
                words = why if reason == "host_ended" and why else words
                self._set(entry.view.run, replace(entry.view, state=state, ended_at=at, reason=words))

    async def wait_over(self, run: str, timeout_s: float) -> RunView:
        """The view when the run is over or the time is up."""
        with anyio.move_on_after(timeout_s):
            while (entry := self._entries.get(run)) is not None and not is_over(entry.view):
                await entry.changed.wait()
        return self.view(run)

    async def wait_still(self, run: str, timeout_s: float) -> RunView:
        """The view when nothing of the run moves, when it is over, or the time is up."""
        with anyio.move_on_after(timeout_s):
            while (
                (entry := self._entries.get(run)) is not None
                and not is_over(entry.view)
                and entry.view.still_since is None
            ):
                await entry.changed.wait()
        return self.view(run)

    async def peers_to_end(self) -> AsyncIterator[EndRanks]:
        """Ranks that are to be ended since others failed, as it becomes known; never ends."""
        while True:
            while self._to_end:
                yield self._to_end.popleft()
            self._to_end_grew = anyio.Event()
            await self._to_end_grew.wait()

    def _set(self, run: str, view: RunView) -> None:
        entry = self._entries[run]
        if view == entry.view:
            return
        entry.view = view
        self._journal.write(("run", run), partial(self._index.put_run, view))
        entry.changed.set()
        entry.changed = anyio.Event()
        self._note_peers(entry)

    def _note_peers(self, entry: _Entry) -> None:
        action = peers_to_end(entry.view)
        if action is not None and not entry.peers_told:
            entry.peers_told = True
            self._to_end.append(action)
            self._to_end_grew.set()
