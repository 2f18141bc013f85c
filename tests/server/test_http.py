"""`milkweed serve --http` as a process of its own, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client

from milkweed.runtime.errors import InvalidArgument
from milkweed.server.http import parse_address

pytestmark = pytest.mark.anyio

MILKWEED = (sys.executable, "-m", "milkweed.server.cli")


@pytest.fixture
def url(places: dict[str, str], tmp_path: Path) -> Iterator[str]:
    with subprocess.Popen(
        [*MILKWEED, "serve", "--http", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **places},
        cwd=tmp_path,
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "MCP over HTTP at http://127.0.0.1:" in line
        yield line.split()[4].rstrip(";")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM, 143)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_tools_are_called_in_both_eras(url: str, mode: str) -> None:
    with anyio.fail_after(30):
        async with Client(url, mode=mode) as client:  # type: ignore[arg-type]
            assert "run_on_mesh" in {tool.name for tool in (await client.list_tools()).tools}
            found = await client.call_tool("list_meshes", {})
            assert (found.structured_content or {})["meshes"] == []
            refused = await client.call_tool("mesh_status", {"mesh": "none"})
            assert refused.is_error


def ask(url: str, **headers: str) -> int:
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        }
    ).encode()
    given = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, given), timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_who_comes_by_another_name_or_from_a_foreign_page_is_refused(url: str) -> None:
    assert ask(url) == 200
    assert ask(url, Host="attacker.example:80") == 421
    assert ask(url, Origin="http://attacker.example") == 403


@pytest.mark.parametrize("address", ["0.0.0.0:8765", "[::]:8765", "192.168.1.7:8765", "login.example:8765"])
def test_what_other_machines_could_reach_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgument, match=r"not_loopback.*ssh -L 8765"):
        parse_address(address)


def test_addresses_of_the_loopback() -> None:
    assert parse_address("8765") == ("127.0.0.1", 8765)
    assert parse_address("127.0.0.1:0") == ("127.0.0.1", 0)
    assert parse_address("[::1]:80") == ("::1", 80)
    assert parse_address("localhost:80") == ("localhost", 80)
    for text in ("", "x", "127.0.0.1", "127.0.0.1:99999"):
        with pytest.raises(InvalidArgument):
            parse_address(text)


def test_a_port_that_is_taken_is_told(url: str) -> None:
    port = url.rpartition(":")[2].partition("/")[0]
    done = subprocess.run(
        [*MILKWEED, "serve", "--http", port], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert "address_in_use" in done.stderr
