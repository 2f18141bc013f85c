from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from milkweed.runtime.errors import NotFound, Unavailable
from milkweed.runtime.index import Index
from milkweed.runtime.keeper.hosts import Hosts
from milkweed.runtime.keeper.journal import Journal
from milkweed.runtime.keeper.trees import Trees
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec

pytestmark = pytest.mark.anyio


async def test_what_the_index_does_not_take_of_an_unmount_is_written_later(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal would say that nothing was changed."""
    index, journal = Index(places.index), Journal()
    mesh, _ = index.claim(MeshSpec("a", 1, 1))
    paths = places.mesh(mesh.mesh)
    for directory in (paths.root, paths.sockets, tmp_path / "data"):
        directory.mkdir(parents=True)
    trees = Trees(mesh.mesh, mesh.spec, paths, index, journal, Hosts())

    end, has_room = index.end_mount, False

    def end_if_there_is_room(mount: str) -> None:
        if not has_room:
            raise Unavailable("index_unusable", "the disk is full", "Make room.")
        end(mount)

    monkeypatch.setattr(index, "end_mount", end_if_there_is_room)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trees.run)
            await anyio.lowlevel.checkpoint()
            added = await trees.add(str(tmp_path / "data"), str(tmp_path / "data"), "auto")
            await trees.remove(added.spec.mount)
            assert [one.mount for one in index.mounts(mesh.mesh)] == [added.spec.mount]
            with pytest.raises(NotFound):
                await trees.remove(added.spec.mount)
            tasks.cancel_scope.cancel()
    has_room = True
    journal.write("another", lambda: None)
    assert index.mounts(mesh.mesh) == ()
    index.close()
