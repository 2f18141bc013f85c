"""Meshes in memory, for tests of tools and server: the client's methods, with nothing behind them."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from milkweed.runtime.client.profile_files import ProfileFile, find_profile, list_profiles
from milkweed.runtime.devices import HostDevices
from milkweed.runtime.errors import Conflict, InvalidArgument, MilkweedError, NotFound
from milkweed.runtime.evidence import HostEvidence
from milkweed.runtime.holdings import HostHoldings
from milkweed.runtime.index import MeshEvent, Plan
from milkweed.runtime.job_records import JobView
from milkweed.runtime.keeper.mesh_keeper import Released
from milkweed.runtime.proc_records import ProcOfRun
from milkweed.runtime.profiling import ProfileRequest, RankProfile
from milkweed.runtime.pulse import Glance
from milkweed.runtime.records import (
    Exit,
    HostEvent,
    HostView,
    MeshSpec,
    MeshView,
    OutputSlice,
    ProcessStacks,
    RankView,
    RunRequest,
    RunView,
)
from milkweed.runtime.schedulers.base import AllocationPlan, SchedulerView

STARTED = 1_700_000_000.0


@dataclass
class FakeRun:
    view: RunView
    output: dict[int, bytes] = field(default_factory=dict)
    request: RunRequest | None = None


class FakeMesh:
    """A mesh whose runs end as `on_start` says: it gets the request and the run, and changes the run."""

    def __init__(self, meshes: FakeMeshes, spec: MeshSpec, mesh: str) -> None:
        self._meshes = meshes
        hosts = tuple(HostView(host, f"host-{host}", "127.0.0.1", "ready") for host in range(spec.hosts))
        self.state = MeshView(mesh, spec, "ready", hosts, lease_left_s=spec.lease_minutes * 60)
        self.held: dict[str, FakeRun] = {}
        self.dumped: tuple[ProcessStacks, ...] = ()
        self.profiled: tuple[RankProfile, ...] = ()
        self.profile_request: ProfileRequest | None = None
        self.profiles = Path("/nowhere")
        self.happened: tuple[MeshEvent, ...] = ()
        self.files: Any = None
        self.job_views: tuple[JobView, ...] = ()
        self.surveyed: tuple[ProcOfRun, ...] = ()
        self.seen_devices: dict[int, HostDevices | MilkweedError] = {}
        self.held_files: dict[int, HostHoldings | MilkweedError] = {}

    @property
    def id(self) -> str:
        return self.state.mesh

    async def view(self) -> MeshView:
        return self.state

    async def events(self, limit: int) -> tuple[MeshEvent, ...]:
        return self.happened[-limit:]

    async def extend_lease(self, minutes: float) -> MeshView:
        self.state = replace(self.state, lease_left_s=max(self.state.lease_left_s, minutes * 60))
        return self.state

    async def release(self) -> Released:
        self.state = replace(self.state, state="released", lease_left_s=0.0)
        running = tuple(run for run, held in self.held.items() if held.view.ended_at is None)
        return Released(self.id, running, 4 * len(running), f"/state/{self.id}")

    async def holdings(self, within_s: float = 5.0) -> dict[int, HostHoldings | MilkweedError]:
        return self.held_files

    async def start_run(self, request: RunRequest) -> RunView:
        if self.state.state == "released":
            raise Conflict("mesh_released", f"{self.id} is released", "allocate_mesh gives a new one.")
        spec = self.state.spec
        ranks = tuple(
            RankView(r, r // spec.procs_per_host, "running", 100 + r) for r in range(spec.world_size)
        )
        name = f"run-{len(self.held)}{self.id[-3:]}"
        command = " ".join(request.argv)
        view = RunView(name, self.id, "running", request.launcher, command, ranks, time.time())
        self.held[name] = FakeRun(view, {rank.rank: b"" for rank in ranks}, request)
        self._meshes.on_start(self.held[name])
        return self.held[name].view

    async def runs(self) -> tuple[RunView, ...]:
        return tuple(held.view for held in self.held.values())

    async def procs(self) -> tuple[ProcOfRun, ...]:
        return self.surveyed

    async def devices(self, within_s: float = 2.0) -> dict[int, HostDevices | MilkweedError]:
        return self.seen_devices

    async def jobs(self) -> tuple[JobView, ...]:
        return self.job_views

    async def run(self, run: str) -> RunView:
        return self.held[run].view

    async def wait_run(self, run: str, *, until: str, pattern: str | None, timeout_s: float) -> RunView:
        with anyio.move_on_after(timeout_s):
            while self.held[run].view.ended_at is None:
                text = b"".join(self.held[run].output.values()).decode("utf-8", "replace")
                if until == "output" and re.search(pattern or ".", text):
                    break
                if until == "still" and self.held[run].view.still_since is not None:
                    break
                await anyio.sleep(0.005)
        return self.held[run].view

    async def cancel_run(self, run: str, *, grace_s: float = 2.0) -> RunView:
        end_run(self.held[run], "cancelled", Exit(signal=15, ended_by="cancelled"))
        return self.held[run].view

    async def read_output(
        self,
        run: str,
        *,
        ranks: tuple[int, ...] | None,
        offsets: Mapping[int, int] | None = None,
        tail_bytes: int | None,
        max_bytes: int,
    ) -> tuple[OutputSlice, ...]:
        held = self.held[run]
        chosen = tuple(held.output) if ranks is None else ranks
        share = max_bytes
        slices = []
        for rank in chosen:
            data = held.output[rank]
            start = (
                (offsets or {}).get(rank, 0)
                if tail_bytes is None
                else max(0, len(data) - min(tail_bytes, share))
            )
            part = data[start : start + share]
            ended = held.view.ended_at is not None
            slices.append(OutputSlice(rank, start, part, start + len(part), len(data), ended))
        return tuple(slices)

    async def stacks(
        self,
        run: str | None,
        *,
        ranks: tuple[int, ...] | None,
        native: bool,
        locals: bool,  # noqa: A002
        timeout_s: float,
    ) -> tuple[ProcessStacks, ...]:
        return tuple(process for process in self.dumped if ranks is None or process.rank in ranks)

    async def evidence(self, run: str, **asked: object) -> tuple[HostEvidence, ...]:
        return ()

    async def profile(
        self, run: str, request: ProfileRequest, *, ranks: tuple[int, ...] | None = None
    ) -> tuple[RankProfile, ...]:
        self.profile_request = request
        return tuple(one for one in self.profiled if ranks is None or one.rank in ranks)

    def __getattr__(self, name: str) -> Any:
        """File methods are those of `files`, which a test sets."""
        return getattr(self.files, name)


class FakeMeshes:
    def __init__(self) -> None:
        self.meshes: dict[str, FakeMesh] = {}
        self.opened = 0
        self.plans: dict[str, Plan] = {}
        self.planned = 0
        self.profile_directories: dict[str, Path] = {}

    def on_start(self, run: FakeRun) -> None:
        """What a new run does; by default it ends well at once."""
        run.output = dict.fromkeys(run.output, b"hello\n")
        end_run(run, "succeeded", Exit(code=0))

    async def plan(self, spec: MeshSpec) -> AllocationPlan:
        if spec.world_size > 512:
            raise InvalidArgument(
                "invalid_argument", f"{spec.world_size} ranks; at most 512", "Ask for fewer."
            )
        return AllocationPlan()

    async def allocate(self, spec: MeshSpec, *, wait_s: float) -> FakeMesh:
        await self.plan(spec)
        for mesh in self.meshes.values():
            if mesh.state.spec.name == spec.name and mesh.state.state != "released":
                if mesh.state.spec != spec:
                    raise Conflict("name_in_use", f"{mesh.id} has other arguments", "Use another name.")
                return mesh
        made = FakeMesh(self, spec, f"mesh-{spec.name}-a{len(self.meshes):02}")
        self.meshes[made.id] = made
        return made

    async def get(self, mesh: str) -> FakeMesh:
        for found in self.meshes.values():
            if mesh == found.id or (mesh == found.state.spec.name and found.state.state != "released"):
                return found
        names = ", ".join(self.meshes) or "none"
        raise NotFound("mesh_not_found", f"no mesh '{mesh}'; meshes: {names}", "Call list_meshes.")

    def known(self, *, released: bool = False) -> tuple[MeshView, ...]:
        views = (mesh.state for mesh in self.meshes.values())
        return tuple(view for view in views if released or view.state != "released")

    def known_runs(self, mesh: str, most: int) -> tuple[RunView, ...]:
        return tuple(held.view for held in reversed(self.meshes[mesh].held.values()))[:most]

    def version(self) -> Glance:
        return self.glance()

    def glance(self) -> Glance:
        live = {mesh.id: mesh for mesh in self.meshes.values() if mesh.state.state != "released"}
        held = [held.view for mesh in self.meshes.values() for held in mesh.held.values()]
        return Glance(
            meshes={mesh: repr(one.state) for mesh, one in live.items()},
            names={one.state.spec.name: mesh for mesh, one in live.items()},
            runs={view.run: repr(view) for view in held},
            events={mesh: len(one.happened) for mesh, one in live.items()},
        )

    async def profiles(self, most: int) -> tuple[ProfileFile, ...]:
        return list_profiles(self.profile_directories.items(), most)

    async def find_profile(self, mesh: str, name: str) -> ProfileFile | None:
        directory = self.profile_directories.get(mesh)
        return None if directory is None else find_profile(mesh, directory, name)

    async def find_run(self, run: str) -> FakeMesh:
        for found in self.meshes.values():
            if run in found.held:
                return found
        raise NotFound("run_not_found", f"no run '{run}'", "Call list_runs.")

    async def list(self, *, released: bool = False) -> tuple[MeshView, ...]:
        return self.known(released=released)

    def add_plan(self, call: str, state: str, expires_at: float) -> Plan:
        self.planned += 1
        plan = Plan(f"plan-{self.planned:05}", call, state, expires_at)
        self.plans[plan.plan] = plan
        return plan

    def take_plan(self, plan: str) -> Plan | None:
        return self.plans.pop(plan, None)

    async def schedulers(self) -> Sequence[SchedulerView]:
        return (
            SchedulerView("local", True, "hosts of this machine", "any number", "none"),
            SchedulerView("slurm", False, "there is no sbatch here"),
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[FakeMeshes]:
        self.opened += 1
        yield self


def end_run(run: FakeRun, state: Any, exit_: Exit, ranks: Sequence[int] | None = None) -> None:
    """Ends the run: `ranks` (default: all) with `exit_`, the others well."""
    done = []
    for rank in run.view.ranks:
        own = exit_ if ranks is None or rank.rank in ranks else Exit(code=0)
        word: Any = "succeeded" if own.ok else "ended" if own.ended_by else "failed"
        done.append(replace(rank, state=word, exit=own, ended_at=run.view.created_at + 1 + rank.rank / 1000))
    run.view = replace(run.view, state=state, ranks=tuple(done), ended_at=run.view.created_at + 1.5)


def event(kind: str, **fields: Any) -> MeshEvent:
    return MeshEvent(0, HostEvent(1, STARTED, kind, **fields))
