"""Running the conformance suite, and judging by single checks what it found."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.inspector.conftest import node

__all__ = ["HOLLOW", "NAMED", "REVISIONS", "Hollow", "Named", "judge", "required", "run_suite"]

REVISIONS = ("2025-11-25", "2026-07-28")
_NAMED = Path(__file__).with_name("conformance.toml")
_RESULTS = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
# Of the suite's own bookkeeping: true of any answer.
_OF_NO_SCENARIO = ("wire-schema-valid",)
_TELLS_ONLY = "INFO"

Checks = Mapping[str, list[tuple[str, str, str]]]


@dataclass(frozen=True)
class Named:
    """A check that is not passed, and why."""

    server: str
    revision: str
    scenario: str
    check: str
    status: str
    reason: str


@dataclass(frozen=True)
class Hollow:
    """A check that is passed without much being shown, and the test that shows it, as FILE::FUNCTION: empty
    where there is nothing to show."""

    server: str
    scenario: str
    check: str
    reason: str
    shown_by: str


def _read_named() -> tuple[tuple[Named, ...], tuple[Hollow, ...]]:
    content = tomllib.loads(_NAMED.read_text())
    return tuple(Named(**one) for one in content["not_passed"]), tuple(
        Hollow(**one) for one in content["hollow"]
    )


NAMED, HOLLOW = _read_named()


def required(revision: str) -> set[str]:
    """The scenarios that a server has to pass, as the suite lists them."""
    asked = node("conformance", "list", "--server", "--requirements", revision)
    listed = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    of_servers = listed.partition("Server scenarios")[2].partition("\n\n")[0]
    return set(re.findall(r"^  - (\S+)", of_servers, re.MULTILINE))


def run_suite(url: str, revision: str, results: Path) -> Checks:
    """Checks by scenario: their ids, statuses and messages."""
    asked = node("conformance", "server", "--url", url, "--requirements", revision, "-o", str(results))
    done = subprocess.run(asked, capture_output=True, text=True, timeout=150, check=False)
    assert "=== SUMMARY ===" in done.stdout, done.stdout + done.stderr
    found: dict[str, list[tuple[str, str, str]]] = {}
    for path in results.glob("*/checks.json"):
        named = _RESULTS.fullmatch(path.parent.name)
        assert named, path
        checks = json.loads(path.read_text())
        found[named["scenario"]] = [
            (one["id"], one["status"], one.get("errorMessage") or "") for one in checks
        ]
    return found


def judge(checks: Checks, scenarios: Iterable[str], server: str, revision: str) -> list[str]:
    """What is not as it should be, in words: nothing, as a rule. Pure."""
    wrong = []
    named = {
        (one.scenario, one.check, one.status)
        for one in NAMED
        if (one.server, one.revision) == (server, revision)
    }
    seen: set[tuple[str, str, str]] = set()
    for scenario in sorted(scenarios):
        found = checks.get(scenario, [])
        if not any(status == "SUCCESS" and check not in _OF_NO_SCENARIO for check, status, _ in found):
            wrong.append(f"{scenario}: nothing was shown ({found})")
        for check, status, message in found:
            if status not in ("SUCCESS", _TELLS_ONLY):
                seen.add((scenario, check, status))
                if (scenario, check, status) not in named:
                    wrong.append(f"{scenario}: {status} {check}: {message}")
    wrong += [f"{one} is named, and did not happen: take it out" for one in sorted(named - seen)]
    return wrong
