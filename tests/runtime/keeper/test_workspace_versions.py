"""What a keeper leaves of a workspace's versions for the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from milkweed.runtime.keeper.workspace_versions import keep_versions, kept_versions


def test_versions_of_names_in_every_encoding_are_kept(tmp_path: Path) -> None:
    versions = {b"a/b.py": (2**63 - 1, 1_700_000_000_000_000_001), "ä".encode(): (1, 2), b"\xff\xfe": (3, 4)}
    keep_versions(tmp_path / "versions", versions)
    assert kept_versions(tmp_path / "versions") == versions


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": [1]}', '{"\u20ac": [1, 2]}'])
def test_what_cannot_be_read_is_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "versions").write_text(text)
    assert kept_versions(tmp_path / "versions") == {}
    assert kept_versions(tmp_path / "absent") == {}
    keep_versions(tmp_path / "no directory" / "versions", {})
