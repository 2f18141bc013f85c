"""Paths of the hosts of a mesh that are shown at the client: a process for each, this keeper's child."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from errno import ENOENT, ENOTCONN
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.to_thread

from ..agent.children import Children, open_children
from ..errors import InvalidArgument, MilkweedError, NotFound, Unavailable
from ..gather import GatherConfig
from ..index import Index
from ..mesh_secret import MESH_VARIABLE, SECRET_VARIABLE
from ..names import quoted
from ..paths import MeshPaths
from ..records import MeshView, MountSpec, MountView, ShownTree, TreeView
from ..services.live_files import LiveFiles
from ..tree_places import is_at_or_below
from .hosts import Hosts
from .journal import Journal
from .unmounted import Unmounted

if TYPE_CHECKING:
    from ..mounts import MountProcess

__all__ = ["GATHER", "Gathers"]

GATHER = "gather"
"""The mode of their specs."""
_MOST = 16
_READY_S = 10.0
_ASK_S = 5.0
_LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class _Gathered:
    spec: MountSpec
    process: MountProcess


class Gathers:
    """`run` shows them for the life of the keeper; they are in the index for the next one."""

    def __init__(
        self, mesh: MeshView, paths: MeshPaths, index: Index, journal: Journal, hosts: Hosts
    ) -> None:
        self._mesh = mesh
        self._paths = paths
        self._index = index
        self._journal = journal
        self._hosts = hosts
        self._shown: dict[str, _Gathered] = {}
        self._children: Children | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._begun = anyio.Event()

    async def run(self) -> None:
        async with open_children(subreaper=False) as self._children, anyio.create_task_group() as self._tasks:
            try:
                for spec in self._index.mounts(self._mesh.mesh):
                    if spec.mode == GATHER:
                        self._begin(spec)
                self._begun.set()
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await self.end_all()

    def _begin(self, spec: MountSpec) -> _Gathered:
        from ..mounts import MountProcess

        assert self._children is not None
        assert self._tasks is not None
        hosts = spec.hosts or range(self._mesh.spec.hosts)
        config = GatherConfig(
            mountpoint=spec.path,
            remote=spec.source,
            hosts=tuple((host, str(self._paths.host_socket(host))) for host in hosts),
            name=spec.mount,
        )
        env = {MESH_VARIABLE: self._mesh.mesh, SECRET_VARIABLE: str(self._paths.secret)}
        made = [Path(one) for one in spec.made]
        process = MountProcess(config, self._children, env=env, made=made)
        self._tasks.start_soon(process.run)
        gathered = self._shown[spec.mount] = _Gathered(spec, process)
        return gathered

    async def add(self, remote: str, mountpoint: str, hosts: tuple[int, ...]) -> MountView:
        """One more, when it is mounted; one that is shown so already is that one.

        Raises:
            NotFound: file_not_found, host_not_found. InvalidArgument: invalid_path, unsupported.
            Unavailable: mount_unusable. Nothing was mounted then.
        """
        await self._begun.wait()
        for one in tuple(self._shown.values()):
            if (one.spec.source, one.spec.path, one.spec.hosts) != (remote, mountpoint, hosts):
                continue
            if one.process.state.phase == "given_up":
                await self.remove(one.spec.mount)
                break
            await one.process.ready(_READY_S)
            return self._view(one)
        if len(self._shown) >= _MOST:
            raise InvalidArgument(
                "unsupported",
                f"a mesh has {_MOST} gather mounts at most",
                "unmount one, or gather more in one.",
            )
        lacking = await self._lacking(remote, hosts or tuple(range(self._mesh.spec.hosts)))
        made = await self._checked(mountpoint)
        spec = self._index.add_mount(self._mesh.mesh, remote, mountpoint, GATHER, hosts, made)
        gathered = self._begin(spec)
        try:
            await gathered.process.ready(_READY_S)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self.remove(spec.mount)
            if isinstance(error, MilkweedError):
                await _require_mountable()
            raise
        return self._view(gathered, lacking)

    async def _lacking(self, remote: str, hosts: tuple[int, ...]) -> dict[int, str]:
        """Why hosts do not show the path now.

        Raises:
            NotFound: file_not_found, none has it; host_not_found.
        """
        answers = await self._hosts.ask(
            [self._hosts[host].host for host in hosts],
            lambda link: link.call_within(_ASK_S, LiveFiles, LiveFiles.attributes, remote, b""),
        )
        lacking = {
            host: answer.cause if isinstance(answer, MilkweedError) else os.strerror(answer)
            for host, answer in answers.items()
            if isinstance(answer, MilkweedError | int)
        }
        if answers and all(answer == ENOENT for answer in answers.values()):
            raise NotFound(
                "file_not_found",
                f"no host has {quoted(remote)}",
                "list_remote_files tells what is there; '.' has what comes later too.",
            )
        return lacking

    async def _checked(self, mountpoint: str) -> tuple[str, ...]:
        """The directories that have to be made for it.

        Raises:
            InvalidArgument: invalid_path, nothing may be mounted there.
            Unavailable: mount_unusable, this machine cannot mount.
        """
        await _require_mountable(binding="")  # what else is missing is seen when it is
        try:
            with anyio.fail_after(_LOOK_S):
                return await anyio.to_thread.run_sync(_to_make, Path(mountpoint), abandon_on_cancel=True)
        except TimeoutError:
            raise _refused(mountpoint, "does not answer: what is mounted there hangs") from None

    def has(self, mount: str) -> bool:
        return mount in self._shown

    async def remove(self, mount: str) -> Unmounted:
        """Unmounts it, whoever uses it."""
        gathered = self._shown.pop(mount)
        with anyio.CancelScope(shield=True):
            in_use = await _stopped(gathered)
        self._journal.write(("mount", mount), partial(self._index.end_mount, mount))
        return Unmounted(gathered.spec, in_use)

    async def end_all(self) -> tuple[str, ...]:
        """Unmounts all, for the end of the mesh or of this keeper: who was in them."""
        shown, self._shown = self._shown, {}
        users: list[str] = []

        async def end(one: _Gathered) -> None:
            users.extend(await _stopped(one))

        async with anyio.create_task_group() as tasks:
            for one in shown.values():
                tasks.start_soon(end, one)
        return tuple(users)

    def views(self) -> tuple[MountView, ...]:
        return tuple(map(self._view, self._shown.values()))

    def _view(self, gathered: _Gathered, lacking: Mapping[int, str] = MappingProxyType({})) -> MountView:
        """`lacking`: hosts that do not have the path itself, and why."""
        spec, state = gathered.spec, gathered.process.state
        problem = "" if state.phase == "ready" else state.problem or state.phase
        gone = {**lacking} | {int(host): why for host, why in (state.said or {}).get("gone", {}).items()}
        hosts = spec.hosts or range(self._mesh.spec.hosts)
        return MountView(
            spec,
            TreeView(
                tuple(
                    ShownTree(
                        host, "" if problem else GATHER, spec.path, problem=problem or gone.get(host, "")
                    )
                    for host in hosts
                )
            ),
        )


async def _require_mountable(binding: str | None = None) -> None:
    """
    Args:
        binding: as `probe` has it.

    Raises:
        Unavailable: mount_unusable, something that mounts need is missing.
    """
    from ..mounts import in_the_way, probe

    mends = in_the_way(await anyio.to_thread.run_sync(probe, binding))
    if mends:
        raise Unavailable(
            "mount_unusable",
            f"this machine cannot mount: {mends[0].problem}",
            f"{mends[0].mend} Without it, fetch_files and read_remote_file show what hosts have.",
        )


async def _stopped(gathered: _Gathered) -> tuple[str, ...]:
    users = await gathered.process.stop()
    return tuple(f"process {one.pid} ({one.command})" for one in users)


def _to_make(mountpoint: Path) -> tuple[str, ...]:
    """Looks whether something may be mounted there. Blocks."""
    from ..mounts.mountpoints import TYPE, all_mounts, clear, missing, resolved

    place = resolved(mountpoint)
    if _is_dead(place):
        clear(place)
    for one in all_mounts():
        there = os.fsdecode(one.path)
        if one.type == TYPE and is_at_or_below(str(place), there):
            raise _refused(mountpoint, f"is in another mount of Milkweed's, {quoted(there)}")
        if there == str(place):
            raise _refused(mountpoint, f"is a mount already, of type {one.type}")
    made = missing(place)
    try:
        if not made and (found := os.listdir(place)):
            raise _refused(mountpoint, f"is not empty: it has {quoted(min(found))}")
        above = place.parent if not made else made[-1].parent
        if not above.is_dir():
            raise _refused(mountpoint, f"cannot be made: {quoted(str(above))} is no directory")
        if made and not os.access(above, os.W_OK | os.X_OK):
            raise _refused(mountpoint, f"cannot be made: {quoted(str(above))} is not writable")
    except OSError as error:
        raise _refused(mountpoint, f"cannot be used: {error.strerror}") from None
    return tuple(map(str, made))


def _is_dead(place: Path) -> bool:
    """Whether a file system is mounted there whose process has gone."""
    try:
        os.statvfs(place)
    except OSError as error:
        return error.errno == ENOTCONN
    return False


def _refused(mountpoint: str | Path, why: str) -> InvalidArgument:
    return InvalidArgument(
        "invalid_path",
        f"mountpoint '{quoted(str(mountpoint))}' {why}",
        "Name a directory that is empty, or not there yet.",
    )
