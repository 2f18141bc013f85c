"""What the suite's verdicts leave open: that fixtures answer what they should, not only something."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.inspector.conftest import ROOT, listening

pytestmark = pytest.mark.anyio

SERVER = [sys.executable, "-m", "tests.inspector.conformance_server"]


@pytest.fixture
def url(places: dict[str, str]) -> Iterator[str]:
    with listening(SERVER, {**os.environ, **places, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}, ROOT) as url:
        yield url


@pytest.fixture(params=["legacy", "auto"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def sample(_: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    asked = params.messages[0].content
    text = types.TextContent(text=f"sampled for {getattr(asked, 'text', asked)!r}")
    return types.CreateMessageResult(role="assistant", content=text, model="none")


async def elicit(_: Any, params: Any) -> types.ElicitResult:
    given = {"name": "Alice", "ok": True, "color": "blue", "context": "a test", "username": "a", "email": "b"}
    wanted = params.requested_schema["properties"]
    return types.ElicitResult(
        action="accept", content={name: given[name] for name in wanted if name in given}
    )


async def roots(_: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///somewhere")])  # type: ignore[arg-type]


def able(url: str, mode: str, **more: Any) -> Client:
    """A client that answers every question."""
    return Client(
        url,
        mode=mode,  # type: ignore[arg-type]
        sampling_callback=sample,
        elicitation_callback=elicit,
        list_roots_callback=roots,
        **more,
    )


def text(result: Any) -> str:
    assert not result.is_error, result
    (content,) = result.content
    return str(content.text)


async def test_plain_answers_are_what_they_should_be(url: str, mode: str) -> None:
    with anyio.fail_after(60):
        async with able(url, mode) as client:
            assert (
                text(await client.call_tool("test_simple_text", {}))
                == "This is a simple text response for testing."
            )
            failed = await client.call_tool("test_error_handling", {})
            assert failed.is_error
            assert "intentionally returns an error" in failed.content[0].text  # type: ignore[union-attr]

            told: list[tuple[float, float | None]] = []

            async def hear(done: float, total: float | None, _: str | None) -> None:
                told.append((done, total))

            await client.call_tool("test_tool_with_progress", {}, progress_callback=hear)
            assert told == [(0, 100), (50, 100), (100, 100)]


async def test_media_arrive_whole(url: str, mode: str) -> None:
    with anyio.fail_after(60):
        async with able(url, mode) as client:
            (image,) = (await client.call_tool("test_image_content", {})).content
            assert base64.b64decode(image.data).startswith(b"\x89PNG")  # type: ignore[union-attr]
            (sound,) = (await client.call_tool("test_audio_content", {})).content
            assert base64.b64decode(sound.data).startswith(b"RIFF")  # type: ignore[union-attr]
            mixed = (await client.call_tool("test_multiple_content_types", {})).content
            assert [one.type for one in mixed] == ["text", "image", "resource"]
            (blob,) = (await client.read_resource("test://static-binary")).contents
            assert blob.blob == image.data  # type: ignore[union-attr]


async def test_completions_are_of_what_was_typed(url: str, mode: str) -> None:
    ref = types.PromptReference(name="test_prompt_with_arguments")
    with anyio.fail_after(60):
        async with able(url, mode) as client:
            found = await client.complete(ref, {"name": "arg1", "value": "par"})
            assert found.completion.values == ["paris", "park", "party"]


async def test_questions_of_the_handshake_era_are_asked_and_their_answers_used(url: str) -> None:
    with anyio.fail_after(60):
        async with able(url, "legacy") as client:
            sampled = text(await client.call_tool("test_sampling", {"prompt": "hello"}))
            assert sampled == "LLM response: sampled for 'hello'"
            asked = text(await client.call_tool("test_elicitation", {"message": "who"}))
            assert asked == 'User response: action=accept, content={"username": "a", "email": "b"}'


async def test_log_messages_of_the_handshake_era_arrive_in_order(url: str) -> None:
    heard: list[str] = []

    async def hear(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params.data)

    with anyio.fail_after(60):
        async with able(url, "legacy", logging_callback=hear) as client:
            assert text(await client.call_tool("test_tool_with_logging", {})) == "logged"
    assert heard == ["Tool execution started", "Tool processing data", "Tool execution completed"]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("elicitation", "Hello, Alice!"),
        ("sampling", "sampled for 'What is the capital of France?'"),
        ("list_roots", "file:///somewhere"),
        ("request_state", "state-ok"),
        ("multiple_inputs", "all there, several"),
        ("multi_round", "Alice likes blue"),
    ],
)
async def test_questions_without_sessions_end_in_an_answer_made_of_what_was_said(
    url: str, name: str, answer: str
) -> None:
    with anyio.fail_after(60):
        async with able(url, "auto") as client:
            assert answer in text(await client.call_tool(f"test_input_required_result_{name}", {}))


async def test_a_prompt_asks_before_it_is_given(url: str) -> None:
    with anyio.fail_after(60):
        async with able(url, "auto") as client:
            (message,) = (await client.get_prompt("test_input_required_result_prompt")).messages
            assert message.content.text == "Use a test"  # type: ignore[union-attr]


async def test_state_is_taken_back_as_it_went_and_no_other(url: str) -> None:
    tool = "test_input_required_result_tampered_state"
    yes = {"confirm": types.ElicitResult(action="accept", content={"ok": True})}
    with anyio.fail_after(60):
        async with able(url, "auto") as client:
            asked = await client.session.call_tool(tool, {}, allow_input_required=True)
            assert isinstance(asked, types.InputRequiredResult)
            assert asked.request_state
            with pytest.raises(MCPError, match="not what this server gave"):
                await client.session.call_tool(
                    tool, {}, input_responses=yes, request_state=asked.request_state + "x"
                )
            done = await client.session.call_tool(
                tool, {}, input_responses=yes, request_state=asked.request_state
            )
            assert text(done) == "state-ok confirm"
