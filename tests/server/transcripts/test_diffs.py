"""Diffs that are made are applied to the same end, and refused where they do not fit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.server.transcripts.diffs import apply_diff, make_diff

TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", " x\n", "-y\n", "+z\n", "@@\n", "\f\r", "end"]), max_size=30)


@given(TEXTS.map("".join), TEXTS.map("".join))
def test_a_diff_applied_to_what_it_was_made_of_gives_the_other(before: str, after: str) -> None:
    assert apply_diff(before, make_diff(before, after, "train.py")) == after


@pytest.mark.skipif(shutil.which("patch") is None, reason="no patch command to compare with")
def test_the_patch_command_reads_it(tmp_path: Path) -> None:
    before, after = "1\n2\n3\n4\n5\n6\n7\n8\nno end", "0\n1\n2\n3\n4\nfive\n6\n7\n8\nnow with\nan end\n"
    file = tmp_path / "a.txt"
    file.write_text(before)
    diff = make_diff(before, after, "a.txt")
    subprocess.run(["patch", "-p1"], input=diff, text=True, check=True, cwd=tmp_path, capture_output=True)
    assert file.read_text() == after


def test_a_text_that_has_changed_is_refused_with_the_line() -> None:
    diff = make_diff("a\nb\nc\n", "a\nB\nc\n", "x")
    with pytest.raises(ValueError, match=r"line 2 is not 'b'"):
        apply_diff("a\nx\nc\n", diff)
    with pytest.raises(ValueError, match=r"line 3 is not 'c'"):
        apply_diff("a\nb\n", diff)
    with pytest.raises(ValueError, match=r"there is no line 41"):
        apply_diff("a\n", "@@ -41,1 +41,1 @@\n-a\n+b\n")
