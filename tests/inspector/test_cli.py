"""The Inspector's command line against the real server: both transports, both protocol eras."""

import json
import subprocess
from typing import Any

import pytest

from milkweed.server.prompts import PROMPTS
from milkweed.server.resources import FORMS
from milkweed.tools.registry import Registry
from tests.inspector.conftest import Served, node

pytestmark = pytest.mark.parametrize(
    ("transport", "era"), [("stdio", "legacy"), ("stdio", "modern"), ("http", "legacy"), ("http", "modern")]
)


def inspect(served: Served, transport: str, era: str, method: str, *arguments: str, code: int = 0) -> Any:
    """What it prints of the result, or of the error."""
    asked = ["--cli", "--format", "json", "-q", "--protocol-era", era, "--method", method, *arguments]
    done = subprocess.run(
        node("mcp-inspector", *asked, *served.target(transport)),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env=served.env,
        cwd=served.workspace,
    )
    assert done.returncode == code, done.stdout + done.stderr
    found = json.loads(
        next(line for line in (done.stdout or done.stderr).splitlines() if line.startswith("{"))
    )
    return found.get("result", found)


def call(served: Served, transport: str, era: str, tool: str, code: int = 0, **arguments: Any) -> Any:
    given = ("--tool-name", tool, "--tool-args-json", json.dumps(arguments))
    return inspect(served, transport, era, "tools/call", *given, code=code)


def test_schemas_of_tools_are_portable(served: Served, transport: str, era: str) -> None:
    """`--strict`: exit 6 where a client could stumble over a schema."""
    tools = inspect(served, transport, era, "tools/list", "--strict")["tools"]
    assert [tool["name"] for tool in tools] == [tool.name for tool in Registry.load().tools]


def test_a_mesh_is_allocated_read_and_released(served: Served, transport: str, era: str) -> None:
    asked = {"name": "t", "hosts": 2, "workspace": str(served.workspace)}
    mesh = call(served, transport, era, "allocate_mesh", **asked)["structuredContent"]["mesh"]
    listed = inspect(served, transport, era, "resources/list")["resources"]
    assert [one["uri"] for one in listed] == [f"mesh://{mesh}", f"events://{mesh}"]
    for one in listed:
        (read,) = inspect(served, transport, era, "resources/read", "--uri", one["uri"])["contents"]
        assert read["text"]
    released = call(served, transport, era, "release_mesh", mesh=mesh)
    assert released["structuredContent"]["state"] == "released"


def test_prompts_and_templates_are_there(served: Served, transport: str, era: str) -> None:
    for prompt in inspect(served, transport, era, "prompts/list")["prompts"]:
        given = [f"{one['name']}=x" for one in prompt["arguments"]]
        name = ("--prompt-name", prompt["name"], "--prompt-args", *given)
        (message,) = inspect(served, transport, era, "prompts/get", *name)["messages"]
        assert message["content"]["text"]
    assert len(PROMPTS) == len(inspect(served, transport, era, "prompts/list")["prompts"])
    templates = inspect(served, transport, era, "resources/templates/list")["resourceTemplates"]
    assert [one["uriTemplate"] for one in templates] == [form.template for form in FORMS]


def test_what_is_wrong_is_an_error_with_the_mend(served: Served, transport: str, era: str) -> None:
    unknown = inspect(served, transport, era, "tools/call", "--tool-name", "allocate", code=5)
    assert unknown["error"]["code"] == "tool_not_found"
    wrong = call(served, transport, era, "allocate_mesh", name="t", hosts=-1, code=5)
    assert "hosts" in json.dumps(wrong)
    missing = inspect(served, transport, era, "resources/read", "--uri", "mesh://none", code=1)
    assert "mesh_not_found" in json.dumps(missing)
