"""The conformance suite against the real server, and in full against the same application factory."""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from tests.inspector.conftest import ROOT, Served, listening, node

ERAS = ("2025-11-25", "2026-07-28")
# Scenarios that ask for nothing that a server of another purpose has not.
OF_ANY_SERVER = {
    "2025-11-25": {
        "server-initialize",
        "ping",
        "tools-list",
        "resources-list",
        "prompts-list",
        "completion-complete",
        "server-sse-multiple-streams",
        "server-session-lifecycle",
        "dns-rebinding-protection",
    },
    "2026-07-28": {
        "server-stateless",
        "tools-list",
        "resources-list",
        "prompts-list",
        "completion-complete",
        "server-sse-multiple-streams",
        "sep-2164-resource-not-found",
        "dns-rebinding-protection",
        "caching",
        "http-header-validation",
    },
}
# They call a tool that only a server made for the suite has.
EXPECTED_FAILURES = {"sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400"}

Checks = dict[str, list[dict[str, Any]]]


def run(url: str, era: str, directory: Path) -> Checks:
    """The checks of each scenario that a server needs for an era, and of those beside them."""
    directory.mkdir()
    asked = node("conformance", "server", "--url", url, "--requirements", era, "-o", str(directory))
    subprocess.run(asked, capture_output=True, timeout=240, check=False)
    found: Checks = {}
    for file in directory.glob("server-*/checks.json"):
        name = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.*", file.parent.name)
        assert name is not None
        found[name[1]] = json.loads(file.read_text())
    return found


def required(era: str) -> set[str]:
    asked = node("conformance", "list", "--server", "--requirements", era)
    text = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    part = text.partition("Server scenarios")[2].partition("\n\n")[0]
    return {line.strip()[2:] for line in part.splitlines() if line.strip().startswith("- ")}


def failures(checks: list[dict[str, Any]]) -> set[str]:
    return {check["id"] for check in checks if check["status"] == "FAILURE"}


@pytest.mark.parametrize("era", ERAS)
def test_the_real_server_meets_what_is_asked_of_any(served: Served, era: str, tmp_path: Path) -> None:
    found = run(served.url, era, tmp_path / "results")
    failed = set().union(*(failures(found[name]) for name in OF_ANY_SERVER[era]))
    assert failed == (EXPECTED_FAILURES if era == "2026-07-28" else set())
    for name in OF_ANY_SERVER[era]:
        assert any(check["status"] == "SUCCESS" for check in found[name]), name


@pytest.mark.parametrize("era", ERAS)
def test_the_application_factory_meets_all_that_an_era_requires(
    era: str, tmp_path: Path, places: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "tests.inspector.conformance_server"]
    with listening(command, {**places, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}, ROOT) as url:
        found = run(url, era, tmp_path / "results")
    wanted = required(era)
    assert len(wanted) == {"2025-11-25": 30, "2026-07-28": 37}[era]
    assert wanted <= found.keys()
    assert {name: failures(found[name]) for name in wanted if failures(found[name])} == {}
    for name in wanted:
        assert any(check["status"] == "SUCCESS" for check in found[name]), name


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_scenarios_that_any_answer_passes_are_asked_again(mode: str, places: dict[str, str]) -> None:
    """`tools-call-simple-text` and `tools-call-error` pass on servers without such tools: that a tool is
    unknown is text, and an error, too."""
    command = [sys.executable, "-m", "tests.inspector.conformance_server"]
    with listening(command, {**places, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}, ROOT) as url:
        with anyio.fail_after(60):
            async with Client(url, mode=mode) as client:
                said = await client.call_tool("test_simple_text", {})
                assert not said.is_error
                assert said.content[0].text == "This is a simple text response for testing."  # type: ignore[union-attr]
                failed = await client.call_tool("test_error_handling", {})
                assert failed.is_error
                assert "intentionally" in failed.content[0].text  # type: ignore[union-attr]
                picture = (await client.call_tool("test_image_content", {})).content[0]
                assert base64.b64decode(picture.data).startswith(b"\x89PNG")  # type: ignore[union-attr]
