"""`milkweed serve` as a process: it answers over stdio in both eras, and ends with its input."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import ResourceTemplateReference

from milkweed.tools.registry import Registry
from tests.plugins import install
from tests.server.conftest import MILKWEED

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


class Server:
    """A server process spoken to line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """The next one; what the server says unasked is passed over."""
        while "id" not in (message := self.message()):
            pass
        return message

    def progress(self) -> Any:
        while (message := self.message()).get("method") != "notifications/progress":
            pass
        return message

    def message(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def call(self, tool: str, **arguments: Any) -> Any:
        self.send(id=2, method="tools/call", params={"name": tool, "arguments": arguments})
        return self.answer()["result"]

    def end(self) -> bytes:
        """Ends its input and lets it end; returns what it wrote to standard error."""
        _, errors = self.process.communicate(timeout=30)
        return errors


@contextmanager
def served(places: dict[str, str], *arguments: str, cwd: Path) -> Iterator[Server]:
    with subprocess.Popen(
        [*MILKWEED, "serve", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **places},
        cwd=cwd,
        process_group=0,
    ) as process:
        server = Server(process)
        try:
            server.send(**INITIALIZE)
            assert server.answer()["result"]["serverInfo"]["name"] == "milkweed"
            server.send(method="notifications/initialized")
            yield server
        finally:
            process.kill()


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_real_client_lists_and_calls_tools(places: dict[str, str], mode: str, tmp_path: Path) -> None:
    command = StdioServerParameters(
        command=MILKWEED[0], args=[*MILKWEED[1:], "serve"], env=places, cwd=str(tmp_path)
    )
    with anyio.fail_after(60):
        async with Client(command, mode=mode) as client:
            assert len((await client.list_tools()).tools) == len(Registry.load().tools)
            result = await client.call_tool("list_meshes", {})
            assert result.structured_content == {"meshes": [], "next": "allocate_mesh gives one."}


@pytest.mark.anyio
async def test_a_real_client_hears_of_its_run_and_reads_it(places: dict[str, str], tmp_path: Path) -> None:
    command = StdioServerParameters(
        command=MILKWEED[0], args=[*MILKWEED[1:], "serve"], env=places, cwd=str(tmp_path)
    )
    with anyio.fail_after(90):
        async with Client(command) as client:
            asked = {"name": "demo", "hosts": 1, "procs_per_host": 1, "workspace": str(tmp_path)}
            mesh = (await client.call_tool("allocate_mesh", asked)).structured_content or {}
            (tmp_path / "go").mkdir()
            waits = "until [ -e gone ]; do ls >gone.new; [ -e go ] || mv gone.new gone; done; echo over"
            run = (
                await client.call_tool("run_on_mesh", {"mesh": mesh["mesh"], "script": waits, "wait_s": 0})
            ).structured_content or {}
            uri = f"run://{run['run']}"
            async with client.listen(resource_subscriptions=[uri]) as changes:
                (tmp_path / "go").rmdir()
                async for _ in changes:
                    (told,) = (await client.read_resource(uri)).contents
                    if json.loads(told.text)["state"] == "succeeded":  # type: ignore[union-attr]
                        break
            listed = {str(one.uri) for one in (await client.list_resources()).resources}
            assert {uri, f"mesh://{mesh['mesh']}"} <= listed
            ref = ResourceTemplateReference(uri="run://{run}")
            assert (await client.complete(ref, {"name": "run", "value": ""})).completion.values == [
                run["run"]
            ]
            for read in listed:
                assert (await client.read_resource(read)).contents
            (output,) = (await client.read_resource(f"{uri}/rank/0/output")).contents
            assert "over" in output.text  # type: ignore[union-attr]
            await client.call_tool("release_mesh", {"mesh": mesh["mesh"]})


def test_the_end_of_its_input_ends_the_server(places: dict[str, str], tmp_path: Path) -> None:
    with served(places, cwd=tmp_path) as server:
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert server.process.wait(10) == 0


def test_the_end_of_its_input_ends_the_server_also_during_a_call(
    places: dict[str, str], tmp_path: Path
) -> None:
    with served(places, cwd=tmp_path) as server:
        server.send(
            id=2, method="tools/call", params={"name": "allocate_mesh", "arguments": {"name": "demo"}}
        )
        mesh = server.answer()["result"]["structuredContent"]["mesh"]
        arguments = {"mesh": mesh, "command": "sleep 300", "wait_s": 45}
        server.send(
            id=3,
            method="tools/call",
            params={"name": "run_on_mesh", "arguments": arguments, "_meta": {"progressToken": 7}},
        )
        server.progress()
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert server.process.wait(10) == 0
    with served(places, cwd=tmp_path) as another:
        another.send(id=2, method="tools/call", params={"name": "list_runs", "arguments": {"mesh": mesh}})
        (run,) = another.answer()["result"]["structuredContent"]["runs"]
        assert run["state"] == "running"
        another.send(id=3, method="tools/call", params={"name": "release_mesh", "arguments": {"mesh": mesh}})
        assert another.answer()["result"]["structuredContent"]["runs_ended"] == [run["run"]]


def test_a_killed_server_loses_nothing(places: dict[str, str], tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    with served(places, cwd=tmp_path) as server:
        mesh = server.call("allocate_mesh", name="demo", lease_minutes=5)["structuredContent"]["mesh"]
        script = f"echo before; cat {go}; echo after"
        run = server.call("run_on_mesh", mesh=mesh, script=script, wait_s=0)["structuredContent"]["run"]
        waiting = {"name": "wait_for_run", "arguments": {"run": run}, "_meta": {"progressToken": 7}}
        server.send(id=3, method="tools/call", params=waiting)
        server.progress()
        os.killpg(server.process.pid, signal.SIGKILL)  # as a client does that ends all it started
        assert server.process.wait(10) == -signal.SIGKILL
    with served(places, cwd=tmp_path) as another:
        (listed,) = another.call("list_meshes")["structuredContent"]["meshes"]
        assert (listed["mesh"], listed["state"]) == (mesh, "ready")
        assert another.call("wait_for_run", run=run, timeout_s=0)["structuredContent"]["state"] == "running"
        go.write_text("between\n")
        ended = another.call("wait_for_run", run=run)["structuredContent"]
        output = another.call("read_run_output", run=run)["content"][0]["text"]
        another.call("release_mesh", mesh=mesh)
    assert ended["state"] == "succeeded"
    assert output.splitlines()[:3] == ["before", "between", "after"]


def test_nothing_but_protocol_goes_to_stdout(places: dict[str, str], tmp_path: Path) -> None:
    with served(places, "--toolsets", "mesh", cwd=tmp_path) as server:
        server.send(id=2, method="tools/call", params={"name": "nonsense", "arguments": {}})
        assert server.answer()["result"]["isError"]
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert server.process.stdout is not None
        assert server.process.stdout.read() == b""
        assert server.process.stderr is not None
        assert server.process.stderr.read() == b""


def test_toolsets_and_read_only_are_taken(places: dict[str, str], tmp_path: Path) -> None:
    with served(places, "--toolsets", "mesh,debug", "--read-only", cwd=tmp_path) as server:
        server.send(id=2, method="tools/list")
        names = [tool["name"] for tool in server.answer()["result"]["tools"]]
    debug = ["diagnose_run", "profile_run", "stack_dump"]
    assert names[:4] == ["list_schedulers", "list_meshes", "mesh_status", "check_mesh"]
    assert sorted(names[4:]) == debug


def test_an_unknown_toolset_is_refused(places: dict[str, str]) -> None:
    done = subprocess.run(
        [*MILKWEED, "serve", "--toolsets", "nope"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "no toolset 'nope'; toolsets: mesh, run, files, debug" in done.stderr


BROKEN = """
from milkweed.tools import Call, Text, tool

@tool("broken")
async def break_it(call: Call) -> Text:
    \"""Breaks.\"""
    raise ZeroDivisionError("by design")

content = [break_it]
"""


def test_unforeseen_errors_go_to_the_log_file(places: dict[str, str], tmp_path: Path) -> None:
    install(tmp_path, "milkweed.toolsets", "broken", BROKEN)
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    with served({**places, "PYTHONPATH": path}, "--toolsets", "broken", cwd=tmp_path) as server:
        result = server.call("break_it")
        assert server.end() == b""
    assert result["isError"]
    assert result["content"][0]["text"].startswith("internal_error: ")
    log = Path(places["MILKWEED_STATE_DIR"], "server.log").read_text()
    assert "Traceback (most recent call last)" in log
    assert "ZeroDivisionError: by design" in log


def test_an_index_that_cannot_be_opened_is_told_without_a_traceback(
    places: dict[str, str], tmp_path: Path
) -> None:
    state = Path(places["MILKWEED_STATE_DIR"])
    state.mkdir(mode=0o700)
    (state / "index.sqlite").mkdir()
    with served(places, cwd=tmp_path) as server:
        result = server.call("list_meshes")
    assert result["content"][0]["text"].startswith("index_unreadable: ")
    assert "Traceback" not in result["content"][0]["text"]


def test_serving_imports_nothing_that_it_does_not_need() -> None:
    code = (
        "import sys, milkweed.server.app, milkweed.runtime.client; from milkweed.server.cli import serve;"
        "from milkweed.tools.registry import Registry; Registry.load().tools[0].arguments.schema;"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert not set(done.stdout.split()) & {"rich", "torch", "numpy", "psutil"}
