"""Prompts through an in-memory client, in both protocol eras."""

from collections.abc import AsyncIterator

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from milkweed.server.app import create_server
from milkweed.server.prompts import PROMPTS
from milkweed.tools.registry import BUILT_IN, Registry
from tests.fakes import FakeMeshes

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["legacy", "auto"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    server = create_server(FakeMeshes().open, Registry.load())  # type: ignore[arg-type]
    with anyio.fail_after(20):
        async with Client(server, mode=request.param) as client:
            yield client


async def get(client: Client, name: str, **arguments: str) -> str:
    (message,) = (await client.get_prompt(name, arguments)).messages
    assert message.role == "user"
    return message.content.text  # type: ignore[union-attr]


async def test_those_of_the_design_are_listed_with_their_arguments(client: Client) -> None:
    prompts = (await client.list_prompts()).prompts
    required = {
        prompt.name: [one.name for one in prompt.arguments or [] if one.required] for prompt in prompts
    }
    assert required == {
        "deploy_training": ["command"],
        "debug_hang": ["run"],
        "debug_nan": ["run"],
        "port_to_amd": ["path"],
    }


async def test_arguments_stand_in_the_text_as_a_call_can_use_them(client: Client) -> None:
    text = await get(client, "deploy_training", command='python train.py --name "a {b}"', hosts="4")
    assert 'run_on_mesh(mesh, command="python train.py --name \\"a {b}\\"")' in text
    assert "allocate_mesh(name=..., hosts=4, procs_per_host=2)" in text
    assert 'workspace="/w"' in await get(client, "deploy_training", command="x", workspace="/w")
    assert 'stack_dump(target="run-a")' in await get(client, "debug_hang", run="run-a")
    assert 'diagnose_run(run="run-a")' in await get(client, "debug_nan", run="run-a")
    assert 'port_to_rocm(path="/src", dry_run=false)' in await get(client, "port_to_amd", path="/src")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("debug_hang", {}, "needs run. Its arguments: run."),
        ("debug_hang", {"run": "  "}, "needs run"),
        ("debug_hang", {"run": "run-a", "mesh": "m"}, "has no argument 'mesh'"),
        ("debug_hang", {"run": "x" * 5000}, "at most 2000 characters of run"),
        ("debug_everything", {}, "prompt_not_found.*Prompts: deploy_training, "),
    ],
)
async def test_a_wrong_request_is_refused_with_the_mend(
    client: Client, name: str, arguments: dict[str, str], words: str
) -> None:
    with pytest.raises(MCPError, match=words) as raised:
        await client.get_prompt(name, arguments)
    assert raised.value.error.code == -32602


def test_tools_and_arguments_that_prompts_name_are_there() -> None:
    """What a prompt says to call can be called so."""
    import re

    tools = {tool.name: tool for tool in Registry.load(",".join(BUILT_IN)).tools}
    for prompt in PROMPTS:
        text = prompt.write({one.name: "x" for one in prompt.arguments})
        calls = re.findall(r"\b([a-z]+_[a-z_]+)\(([^()]*)\)", text)
        assert calls
        for name, arguments in calls:
            if name.startswith("set_"):
                continue  # torch's
            known = tools[name].arguments.schema["properties"]
            assert set(re.findall(r"\b([a-z_]+)=", arguments)) <= known.keys(), (prompt.name, name)
