"""What the hosts of one mesh have that nobody else has, and what of it outlives them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio.to_thread

from ..actor import Actor, endpoint
from ..errors import MilkweedError
from ..holdings import HeldFile, HostHoldings, HostLayout, KeepRule, is_checkpoint, keep, open_up, survey
from ..index import Index
from ..output_moving import led_to, move_output
from ..paths import MeshPaths
from ..records import MeshSpec
from ..services.held_files import HeldFiles
from .hosts import Hosts
from .links import HostLink
from .trees import Trees

__all__ = ["HoldingControl", "KeptFiles"]

logger = logging.getLogger(__name__)

_SLACK_S = 3.0
_DISK_S = 600.0
_MOST_KEPT = 1_000_000
_FAILURES_LOGGED = 100


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """`directory` is empty where nothing was to be kept; `failed` says of which files not, and why, and
    `more` how many else.
    """

    directory: str = ""
    files: int = 0
    bytes: int = 0
    failed: tuple[str, ...] = ()
    more: int = 0

    def in_words(self, log: Path) -> str:
        """Empty where nothing was to be kept; `log` says what could not be."""
        said = [f"{self.files:,} files are kept in {self.directory}"] if self.files else []
        if self.failed:
            said.append(f"{len(self.failed) + self.more:,} could not be kept, {log} says why")
        return "; ".join(said)


class HoldingControl(Actor):
    def __init__(
        self, mesh: str, spec: MeshSpec, paths: MeshPaths, index: Index, hosts: Hosts, trees: Trees
    ) -> None:
        self._mesh = mesh
        self._spec = spec
        self._paths = paths
        self._index = index
        self._hosts = hosts
        self._trees = trees
        self.is_ending = False

    @contextmanager
    def ending(self) -> Iterator[None]:
        """The mesh is ended meanwhile: nobody is to be asked any more about what hosts have."""
        self.is_ending = True
        try:
            yield
        finally:
            self.is_ending = False

    @endpoint
    async def survey(self, within_s: float) -> dict[int, HostHoldings | MilkweedError]:
        """What each host has that goes with the mesh, in the client's words; without what is to be kept. Of
        hosts that do not answer too, where their disk is seen here. Nothing once the mesh is being ended.
        """
        if self.is_ending:
            return {}
        rules = self._rules()
        answers = await self._hosts.ask(
            self._hosts.links, lambda link: self._ask(link, within_s, rules[link.host])
        )
        return {
            host: answer if isinstance(answer, MilkweedError) else _in_words_of(rules[host], answer)
            for host, answer in answers.items()
        }

    async def _ask(self, link: HostLink, within_s: float, rule: KeepRule) -> HostHoldings:
        if link.state == "ready":
            with suppress(MilkweedError):
                return await link.call_within(
                    within_s + _SLACK_S, HeldFiles, HeldFiles.survey, within_s, rule
                )
        if not self._paths.host(link.host).is_dir():
            raise link.unreachable()
        layout = HostLayout(self._paths.host(link.host))
        look = partial(survey, layout, within_s, of=lambda file: not rule.keeps(file.path))
        return await anyio.to_thread.run_sync(look, abandon_on_cancel=True)

    def _rules(self) -> dict[int, KeepRule]:
        """Of each host."""
        globs = self._index.globs_to_keep(self._mesh)
        places = {host: self._trees.workspace_place(host) for host in range(self._spec.hosts)}
        return {host: KeepRule(globs, self._spec.workspace, place) for host, place in places.items()}

    async def keep(self, *, all_that_matters: bool) -> KeptFiles:
        """Puts files of hosts that have ended into the data directory: what runs asked for, and if nobody
        could be asked, whatever was written to the workspace.

        Only of hosts whose disk is seen here.
        """
        for host in range(self._spec.hosts):
            await anyio.to_thread.run_sync(open_up, self._paths.host(host))
        rules = self._rules()
        if not any(rule.patterns for rule in rules.values()) and not all_that_matters:
            return KeptFiles()
        return await anyio.to_thread.run_sync(self._keep, rules, all_that_matters)

    async def keep_output(self) -> Path:
        """Puts the output of runs into the data directory, of hosts whose disk is seen here: where it is.
        What cannot be there stays with the host's files, and is found there.
        """
        return await anyio.to_thread.run_sync(self._keep_output)

    def _keep_output(self) -> Path:
        where, stays = self._paths.root, False
        for host in range(self._spec.hosts):
            for source in sorted((self._paths.host(host) / "runs").glob("*")):
                try:
                    where = led_to(self._paths.output, self._paths.kept_output)
                    move_output(source, where / source.name / str(host))
                except OSError as error:
                    why = error.strerror or error
                    logger.warning("the output of %s stays in %s: %s", source.name, source, why)
                    stays = True
        return self._paths.root if stays else where

    def _keep(self, rules: Mapping[int, KeepRule], all_that_matters: bool) -> KeptFiles:
        count = size = 0
        failed: list[str] = []
        for host, rule in rules.items():

            def is_wanted(file: HeldFile, rule: KeepRule = rule) -> bool:
                return rule.keeps(file.path) or (all_that_matters and _is_of_use(file))

            found = survey(HostLayout(self._paths.host(host)), _DISK_S, _MOST_KEPT, is_wanted)
            named = [replace(one, path=self._name(rule.here(one.path))) for one in found.files]
            folder = str(host)  # as in fetch_files and gather mounts
            kept = keep(named, self._paths.kept / folder, self._paths.not_kept / folder)
            count, size = count + kept.files, size + kept.bytes
            failed += [f"host {host}: {why}" for why in kept.failed]
            if found.more or found.is_partial:
                failed.append(f"host {host}: what could not be looked at, or not in {_DISK_S:.0f} s")
        for why in failed[:_FAILURES_LOGGED]:
            logger.warning("not kept: %s", why)
        told, more = tuple(failed[:_FAILURES_LOGGED]), len(failed[_FAILURES_LOGGED:])
        return KeptFiles(str(self._paths.kept) if count else "", count, size, told, more)

    def _name(self, path: str) -> str:
        """In the folder of its host: as in the workspace, or with all of its path."""
        workspace = self._spec.workspace.rstrip(os.sep) + os.sep
        return path.removeprefix(workspace)


def _in_words_of(rule: KeepRule, found: HostHoldings) -> HostHoldings:
    return replace(found, files=tuple(replace(one, path=rule.here(one.path)) for one in found.files))


def _is_of_use(file: HeldFile) -> bool:
    return file.place != "temporary" and (is_checkpoint(file) or "__pycache__" not in file.path.split("/"))
