"""Files of profiles as resources, through an in-memory client in both protocol eras."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from milkweed.runtime.client.profile_files import list_profiles
from milkweed.server.app import create_server
from milkweed.tools.registry import Registry
from tests.fakes import FakeMeshes

pytestmark = pytest.mark.anyio

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><title>run-1</title></svg>'


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "p").mkdir()
    return tmp_path / "p"


@pytest.fixture(params=["legacy", "auto"])
async def client(request: pytest.FixtureRequest, directory: Path) -> AsyncIterator[Client]:
    meshes: Any = FakeMeshes()
    meshes.profile_directories = {"mesh-a": directory}
    with anyio.fail_after(20):
        async with Client(create_server(meshes.open, Registry.load()), mode=request.param) as client:
            yield client


async def test_files_are_listed_with_their_types_and_read(client: Client, directory: Path) -> None:
    (directory / "run-1.svg").write_text(SVG)
    (directory / "run-1.speedscope.json").write_text("{}")
    (directory / "run-1.rank-0.trace.json.gz").write_bytes(b"\x1f\x8b\xff")
    (directory / ".run-1.part").write_text("")
    listed = {one.name: one for one in (await client.list_resources()).resources}
    assert {name: (str(one.uri), one.mime_type, one.size) for name, one in listed.items()} == {
        "run-1.svg": ("profile://mesh-a/run-1.svg", "image/svg+xml", len(SVG)),
        "run-1.speedscope.json": ("profile://mesh-a/run-1.speedscope.json", "application/json", 2),
        "run-1.rank-0.trace.json.gz": ("profile://mesh-a/run-1.rank-0.trace.json.gz", "application/gzip", 3),
    }
    (text,) = (await client.read_resource("profile://mesh-a/run-1.svg")).contents
    assert text.text == SVG  # type: ignore[union-attr]
    (blob,) = (await client.read_resource("profile://mesh-a/run-1.rank-0.trace.json.gz")).contents
    assert base64.b64decode(blob.blob) == b"\x1f\x8b\xff"  # type: ignore[union-attr]


async def test_what_is_no_file_of_a_profile_is_not_found(client: Client, directory: Path) -> None:
    (directory.parent / "secret").write_text("x")
    (directory / "link.svg").symlink_to(directory.parent / "secret")
    (directory / "folder.svg").mkdir()
    for uri in (
        "profile://mesh-a/none.svg",
        "profile://mesh-b/run-1.svg",
        "profile://mesh-a/../secret",
        "profile://mesh-a/%2e%2e/secret",
        "profile://mesh-a/link.svg",
        "profile://mesh-a/folder.svg",
        "profile://mesh-a/",
        "file:///etc/passwd",
    ):
        with pytest.raises(MCPError, match=r"resource_not_found.*resources/list") as raised:
            await client.read_resource(uri)
        assert raised.value.error.code == -32602
    assert (await client.list_resources()).resources == []


async def test_a_file_that_is_too_large_to_send_is_named(client: Client, directory: Path) -> None:
    with (directory / "run-1.speedscope.json").open("wb") as file:
        file.truncate(9 * 1024 * 1024)
    with pytest.raises(MCPError, match=r"resource_too_large.*run-1\.speedscope\.json"):
        await client.read_resource("profile://mesh-a/run-1.speedscope.json")


def test_the_newest_files_come_first_and_no_more_than_were_asked_for(tmp_path: Path) -> None:
    for at, name in enumerate(("old", "new", "newest")):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (at, at))
    found = list_profiles([("mesh-a", tmp_path), ("mesh-b", tmp_path / "none")], 2)
    assert [one.name for one in found] == ["newest", "new"]
