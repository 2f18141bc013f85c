"""The MCP Inspector's command line on `milkweed serve`: what a stranger's client makes of the server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from milkweed.tools.registry import Registry
from tests.server.conftest import MILKWEED, Cli, serving
from tests.server.node import INSPECTOR, run

# Its own "isError" and "no such tool".
FAILED_CALL = 5

Inspect = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=["stdio", "http"])
def inspect(
    request: pytest.FixtureRequest, places: dict[str, str], cli: Cli, tmp_path: Path
) -> Iterator[Inspect]:
    """`inspect("legacy", "tools/list")`; what it allocates is released with the fixture `cli`."""

    def on(*target: str) -> Inspect:
        def inspect(era: str, method: str, *options: str) -> subprocess.CompletedProcess[str]:
            asked = ("--protocol-era", era, "--format", "json", "--quiet", "--method", method)
            return run(INSPECTOR, "--cli", *asked, *options, *target, home=tmp_path)

        return inspect

    if request.param == "http":
        with serving([*MILKWEED, "serve", "--http", "0"], places, tmp_path) as url:
            yield on("--transport", "http", "--server-url", url)
    else:
        given = [part for name, value in places.items() for part in ("-e", f"{name}={value}")]
        yield on(*given, "--", *MILKWEED, "serve")


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["result"]
    return found


def call(inspect: Inspect, era: str, tool: str, **arguments: Any) -> subprocess.CompletedProcess[str]:
    given = json.dumps(arguments)
    return inspect(era, "tools/call", "--tool-name", tool, "--tool-args-json", given)


@pytest.mark.parametrize("era", ["legacy", "auto", "modern"])
def test_all_tools_are_listed_and_their_schemas_stand_a_strict_look(inspect: Inspect, era: str) -> None:
    done = inspect(era, "tools/list", "--strict")
    assert [tool["name"] for tool in result(done)["tools"]] == [tool.name for tool in Registry.load().tools]
    assert not done.stderr.strip()


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_tools_are_called_and_what_they_made_is_read_as_resources(
    inspect: Inspect, era: str, tmp_path: Path
) -> None:
    schedulers = result(call(inspect, era, "list_schedulers"))["structuredContent"]["schedulers"]
    assert "local" in {one["scheduler"] for one in schedulers}

    mesh = result(call(inspect, era, "allocate_mesh", name="looked-at", workspace=str(tmp_path)))
    made = mesh["structuredContent"]
    assert made["state"] == "ready"
    assert made["mesh"] in mesh["content"][0]["text"]

    listed = [one["uri"] for one in result(inspect(era, "resources/list"))["resources"]]
    assert f"mesh://{made['mesh']}" in listed
    for uri in listed:
        (contents,) = result(inspect(era, "resources/read", "--uri", uri))["contents"]
        assert contents["uri"] == uri
        assert contents.get("text") or contents.get("blob")

    released = result(call(inspect, era, "release_mesh", mesh=made["mesh"]))["structuredContent"]
    assert released["state"] == "released"


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_what_cannot_be_called_is_a_failed_call(inspect: Inspect, era: str) -> None:
    no_such = call(inspect, era, "allocate_mehs", name="a")
    assert no_such.returncode == FAILED_CALL
    assert "tool_not_found" in no_such.stderr

    wrong = call(inspect, era, "mesh_status", mesh="a", bogus=1)
    assert wrong.returncode == FAILED_CALL
    assert "unknown argument 'bogus'" in json.loads(wrong.stdout)["result"]["content"][0]["text"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_every_prompt_is_had_with_the_arguments_that_it_declares(inspect: Inspect, era: str) -> None:
    for prompt in result(inspect(era, "prompts/list"))["prompts"]:
        given = {one["name"]: f"given-{one['name']}" for one in prompt.get("arguments", [])}
        pairs = [part for name, value in given.items() for part in ("--prompt-args", f"{name}={value}")]
        got = result(inspect(era, "prompts/get", "--prompt-name", prompt["name"], *pairs))
        text = "\n".join(message["content"]["text"] for message in got["messages"])
        required = [one["name"] for one in prompt.get("arguments", []) if one.get("required")]
        assert all(given[name] in text for name in required)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_templates_are_listed_and_an_address_of_nothing_is_told(inspect: Inspect, era: str) -> None:
    templates = result(inspect(era, "resources/templates/list"))["resourceTemplates"]
    for template in templates:
        assert template["uriTemplate"]
        assert template["description"]
    missing = inspect(era, "resources/read", "--uri", "mesh://nowhere")
    assert missing.returncode not in (0, FAILED_CALL)
    assert "not_found" in missing.stderr
