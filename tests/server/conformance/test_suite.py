"""The conformance suite: what needs no fixtures on `milkweed serve`, all that is required on fixtures.

Both are one application: `milkweed.server.app.assemble`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.server.conformance.suite import HOLLOW, NAMED, REVISIONS, judge, required, run_suite
from tests.server.conftest import MILKWEED, Cli, serving

_ROOT = Path(__file__).parents[3]
_COUNT = {"2025-11-25": 30, "2026-07-28": 37}
# What a revision does not require, and passes: the suite runs it beside the required ones.
_BESIDE = {
    "2025-11-25": {"server-session-lifecycle", "json-schema-2020-12"},
    "2026-07-28": {"http-header-validation", "json-schema-2020-12"},
}
_WITHOUT_FIXTURES = {
    "2025-11-25": {
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "resources-list",
        "prompts-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    },
    "2026-07-28": {
        "server-stateless",
        "tools-list",
        "resources-list",
        "prompts-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "caching",
        "sep-2164-resource-not-found",
        "http-header-validation",
        "input-required-result-unsupported-methods",
    },
}


@pytest.mark.parametrize("revision", REVISIONS)
def test_milkweed_passes_what_needs_no_fixtures(
    revision: str, places: dict[str, str], cli: Cli, tmp_path: Path
) -> None:
    # A mesh is a resource: without one the suite has nothing to read.
    assert cli("call", "allocate_mesh", "name=listed").returncode == 0
    with serving([*MILKWEED, "serve", "--http", "0"], places, tmp_path) as url:
        checks = run_suite(url, revision, tmp_path)
    assert not judge(checks, _WITHOUT_FIXTURES[revision], "milkweed", revision)


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_application_passes_all_that_is_required(
    revision: str, places: dict[str, str], tmp_path: Path
) -> None:
    scenarios = required(revision, tmp_path)
    assert len(scenarios) == _COUNT[revision]
    fixtures = [sys.executable, "-m", "tests.server.conformance.serving"]
    with serving(fixtures, places, _ROOT) as url:
        checks = run_suite(url, revision, tmp_path)
    assert not judge(checks, scenarios | _BESIDE[revision], "fixtures", revision)


def test_what_is_hollow_is_shown_by_a_test_that_exists() -> None:
    assert all(one.reason for one in (*NAMED, *HOLLOW))
    for one in HOLLOW:
        file, _, function = one.shown_by.partition("::")
        assert not file or f"def {function}(" in (_ROOT / file).read_text(), one


def test_a_failure_a_warning_and_an_empty_scenario_are_told_and_so_is_a_name_out_of_date() -> None:
    checks = {
        "ping": [("ping", "SUCCESS", ""), ("ping-again", "WARNING", "slow")],
        "tools-list": [("tools-list", "FAILURE", "no tools"), ("wire-schema-valid", "SUCCESS", "")],
    }
    told = judge(checks, ["ping", "tools-list", "caching"], "milkweed", "2026-07-28")
    assert [line.partition(" (")[0] for line in told[:4]] == [
        "caching: nothing was shown",
        "ping: WARNING ping-again: slow",
        "tools-list: nothing was shown",
        "tools-list: FAILURE tools-list: no tools",
    ]
    of_milkweed = [one for one in NAMED if one.server == "milkweed"]
    assert len([line for line in told if "take it out" in line]) == len(of_milkweed)
