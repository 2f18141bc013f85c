from __future__ import annotations

import pytest

from milkweed.runtime.keeper.links import why_lost


@pytest.mark.parametrize(
    ("guard", "agent", "why"),
    [
        ("2026-01-01T00:00:00Z guard 7: agent 9 started", "x", "its guard was killed"),
        ("", "", "its guard was killed"),
        ("... guard 7: agent 9 ended: signal 9", "x", "its agent was killed (SIGKILL)"),
        ("... guard 7: agent 9 ended: exit 0", "x", "its agent was told to end"),
        ("... guard 7: agent 9 ended: exit 1", "OSError: full", "its agent failed (exit 1): OSError: full"),
    ],
)
def test_the_last_lines_of_the_logs_tell_why_a_host_is_gone(guard: str, agent: str, why: str) -> None:
    assert why_lost(guard, agent) == why
