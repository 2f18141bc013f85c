"""What Milkweed's own streams hold without sessions, frame by frame: the suite has no long call for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from tests.inspector.conftest import Served

REVISION = "2026-07-28"
META = "io.modelcontextprotocol"


@contextmanager
def asked(url: str, method: str, number: int, **params: Any) -> Iterator[Iterator[dict[str, Any]]]:
    """The frames of the answer to one request, as they come."""
    meta = {
        f"{META}/protocolVersion": REVISION,
        f"{META}/clientInfo": {"name": "test", "version": "1"},
        f"{META}/clientCapabilities": {},
        **params.pop("_meta", {}),
    }
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": REVISION,
        "Mcp-Method": method,
        **({"Mcp-Name": params["name"]} if "name" in params else {}),
    }
    parts = urlsplit(url)
    with closing(HTTPConnection(str(parts.hostname), parts.port, timeout=60)) as connection:
        connection.request("POST", parts.path, json.dumps(body), headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        if not str(answer.getheader("Content-Type")).startswith("text/event-stream"):
            yield iter([json.loads(answer.read())])
            return
        lines = (line.decode().strip() for line in answer)
        yield (json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:"))


def call(url: str, tool: str, **arguments: Any) -> dict[str, Any]:
    with asked(url, "tools/call", 1, name=tool, arguments=arguments) as frames:
        *_, last = frames
    result: dict[str, Any] = last["result"]
    assert not result.get("isError"), result
    return result


def test_streams_of_calls_side_by_side_hold_their_own_progress_and_their_own_answer(served: Served) -> None:
    url, workspace = served.url, served.workspace
    mesh = call(url, "allocate_mesh", name="streams", workspace=str(workspace))["structuredContent"]["mesh"]
    arguments = {"mesh": mesh, "script": "until [ -e go ]; do ls >seen; done; echo $0", "wait_s": 45}
    given = {"name": "run_on_mesh", "arguments": arguments}
    with (
        asked(url, "tools/call", 11, **given, _meta={"progressToken": "first"}) as first,
        asked(url, "tools/call", 12, **given, _meta={"progressToken": "second"}) as second,
    ):
        begun = [next(first), next(second)]
        (workspace / "go").touch()
        streams = {"first": [begun[0], *first], "second": [begun[1], *second]}
    runs = set()
    for (token, frames), number in zip(streams.items(), (11, 12), strict=True):
        *told, answer = frames
        assert told
        assert {one["method"] for one in told} == {"notifications/progress"}
        assert {one["params"]["progressToken"] for one in told} == {token}
        assert answer["id"] == number
        assert answer["result"]["structuredContent"]["state"] == "succeeded"
        runs.add(answer["result"]["structuredContent"]["run"])
    assert len(runs) == 2


def test_a_subscription_hears_of_what_it_named_and_of_nothing_else(served: Served) -> None:
    url, workspace = served.url, served.workspace
    mesh = call(url, "allocate_mesh", name="watched", workspace=str(workspace))["structuredContent"]["mesh"]
    uri = f"mesh://{mesh}"
    named = {"resourceSubscriptions": [uri], "toolsListChanged": True, "promptsListChanged": True}
    with (
        asked(url, "subscriptions/listen", 21, notifications={"resourcesListChanged": True}) as lists,
        asked(url, "subscriptions/listen", 22, notifications=named) as updates,
    ):
        begun = [next(lists), next(updates)]
        assert {one["method"] for one in begun} == {"notifications/subscriptions/acknowledged"}
        call(url, "release_mesh", mesh=mesh)
        changed, updated = next(lists), next(updates)  # on the server the list is told of before the mesh
    assert changed["method"] == "notifications/resources/list_changed"
    assert updated["method"] == "notifications/resources/updated"
    assert updated["params"]["uri"] == uri
    for frame, number in ((changed, 21), (updated, 22)):
        assert frame["params"]["_meta"][f"{META}/subscriptionId"] == number
