from __future__ import annotations

import pytest

from milkweed.runtime.codec import from_json, to_json
from milkweed.runtime.watching import WatchPolicy, parse_policy


def test_settings_are_changed_by_name() -> None:
    policy = parse_policy("quiet_s=1, busy_looks=2")
    assert policy == WatchPolicy(quiet_s=1.0, busy_looks=2)
    assert from_json(WatchPolicy, to_json(policy)) == policy


@pytest.mark.parametrize("text", ["", "quiet_s", "quiet_s=x", "nothing=3", "quiet_s=-1", "quiet_s=nan"])
def test_what_is_no_setting_is_ignored(text: str) -> None:
    assert parse_policy(text) == WatchPolicy()


def test_it_can_be_turned_off() -> None:
    assert not parse_policy("off").on
