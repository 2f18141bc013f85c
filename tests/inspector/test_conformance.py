"""The conformance suite against the real server, and in full against the same application factory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inspector.conformance_suite import HOLLOW, NAMED, REVISIONS, judge, required, run_suite
from tests.inspector.conftest import MILKWEED, ROOT, Served, listening

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
        "input-required-result-unsupported-methods",
    },
}
# Not required, and passed.
BESIDE = {"2025-11-25": {"server-session-lifecycle"}, "2026-07-28": {"http-header-validation"}}


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_real_server_meets_what_is_asked_of_any(served: Served, revision: str, tmp_path: Path) -> None:
    # A mesh is a resource: without one `caching` has nothing to read, and says so only by a check it skips.
    allocate = [*MILKWEED, "call", "allocate_mesh", "name=listed"]
    subprocess.run(
        allocate, env=served.env, cwd=served.workspace, check=True, timeout=60, capture_output=True
    )
    checks = run_suite(served.url, revision, tmp_path / "results")
    assert not judge(checks, OF_ANY_SERVER[revision], "milkweed", revision)


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_application_factory_meets_all_that_an_era_requires(
    revision: str, tmp_path: Path, places: dict[str, str]
) -> None:
    wanted = required(revision)
    assert len(wanted) == {"2025-11-25": 30, "2026-07-28": 37}[revision]
    command = [sys.executable, "-m", "tests.inspector.conformance_server"]
    env = {**os.environ, **places, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    with listening(command, env, ROOT) as url:
        checks = run_suite(url, revision, tmp_path / "results")
    assert not judge(checks, wanted | BESIDE[revision], "fixtures", revision)


def test_what_is_hollow_is_shown_by_a_test_that_exists() -> None:
    assert all(one.reason for one in (*NAMED, *HOLLOW))
    for one in HOLLOW:
        file, _, function = one.shown_by.partition("::")
        assert not file or f"def {function}(" in (ROOT / file).read_text(), one


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
