"""The step that a rank is at."""

from __future__ import annotations

from pathlib import Path

import pytest

from milkweed.runtime.metrics.latest import LATEST_BYTES, latest_step


@pytest.mark.parametrize(
    ("output", "step"),
    [
        (b"step 3 loss 1.5\nstep 4 loss 1.4\n", 4),
        (b"ep 7 loss 0.1\nstep 4 loss 1.4\nsaved\nstep 5 lo", 4),
        (b"hello\nworld\n", None),
        (b"", None),
        (b"\xff\xfe\0\nstep 9 loss 2.0\n", 9),
    ],
)
def test_by_what_it_printed_last_in_whole_lines(tmp_path: Path, output: bytes, step: int | None) -> None:
    assert latest_step(tmp_path, "rank-0", b"\n" + output) == step


def test_what_was_reported_comes_first(tmp_path: Path) -> None:
    lines = [f'[{1000.0 + n}, {n}, {{"loss": 1.0}}]\n' for n in range(500)]
    (tmp_path / "rank-0.metrics.7").write_text("".join(lines) + "[1500.0, 500, {")
    assert sum(map(len, lines)) > 2 * LATEST_BYTES
    assert latest_step(tmp_path, "rank-0", b"\nstep 3 loss 1.5\n") == 499
    assert latest_step(tmp_path, "rank-1", b"\nstep 3 loss 1.5\n") == 3
