"""Where the metrics of a rank are looked for."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from milkweed.runtime.metrics.find import changed_files, written_files
from milkweed.runtime.metrics.reading import read_rank_metrics, read_whole_lines
from tests.runtime.hosts import popen
from tests.runtime.metrics.test_tensorboard import event, simple


def lines(*steps: int) -> str:
    return "".join(f'{{"step": {step}, "loss": 0.5}}\n' for step in steps)


def test_nothing_is_known_of_a_rank_that_tells_nothing(tmp_path: Path) -> None:
    assert read_rank_metrics(tmp_path, "rank-0", output=b"hello\n", cwd=str(tmp_path)) is None


def test_what_is_reported_comes_before_files_and_these_before_output(tmp_path: Path) -> None:
    run, work = tmp_path / "run", tmp_path / "work"
    run.mkdir()
    work.mkdir()

    def source() -> str:
        found = read_rank_metrics(run, "rank-0", cwd=str(work), output=b"step 1 loss 0.5\n")
        assert found is not None
        return found.source

    assert source() == "printed lines"
    (work / "log.jsonl").write_text(lines(1))
    assert source() == "log.jsonl"
    (work / "runs").mkdir()
    (work / "runs/events.out.tfevents.1.host.77.0").write_bytes(event(1, simple("loss", 0.5)))
    assert source() == "runs/events.out.tfevents.1.host.77.0"
    (run / "rank-0.metrics.77").write_text('[1.0, 1, {"loss": 0.5}]\n')
    (run / "rank-01.metrics.77").write_text('[1.0, 9, {"loss": 0.5}]\n')
    assert source() == "milkweed.report"


def test_reports_of_several_processes_are_told_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "rank-0.metrics.77").write_text('[1.0, 1, {"loss": 0.5}]\n[4.0, 2, {"loss": 0.5}]\n')
    (tmp_path / "rank-0.metrics.78").write_text(
        '[2.0, null, {"load_s": 0.5}]\n[3.0, null, {"load_s": 0.5}]\n'
    )
    found = read_rank_metrics(tmp_path, "rank-0")
    assert found is not None
    assert [point.at for point in found.points] == [1.0, 2.0, 3.0, 4.0]


def test_an_event_file_that_names_nobody_may_be_anothers(tmp_path: Path) -> None:
    for name, shared in (("events.out.tfevents.1.host", True), ("events.out.tfevents.1.host.5.0", False)):
        (tmp_path / name).write_bytes(event(1, simple("loss", 0.5)))
        found = read_rank_metrics(tmp_path, "rank-0", pids=[5], cwd=str(tmp_path))
        assert found is not None
        assert found.shared is shared
        (tmp_path / name).unlink()


def test_steps_that_are_reported_without_values_leave_the_word_to_others(tmp_path: Path) -> None:
    (tmp_path / "rank-0.metrics.77").write_text("[1.0, 1, {}]\n")
    found = read_rank_metrics(tmp_path, "rank-0", output=b"")
    assert found is not None
    assert (found.source, found.last.step) == ("milkweed.report", 1)
    found = read_rank_metrics(tmp_path, "rank-0", output=b"step 3 loss 0.5\n")
    assert found is not None
    assert found.source == "printed lines"


def test_files_that_a_process_writes_are_found_and_those_that_it_reads_are_not(tmp_path: Path) -> None:
    for name in ("data.jsonl", "out.jsonl", "notes.txt"):
        (tmp_path / name).write_text(lines(1))
    code = "import sys; r, w, n = open('data.jsonl'), open('out.jsonl', 'a'), open('notes.txt', 'a')\n"
    code += "print('ready', flush=True); sys.stdin.read()"
    process = popen([sys.executable, "-c", code], cwd=tmp_path, stdin=-1, stdout=-1)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert written_files([process.pid]) == (str(tmp_path / "out.jsonl"),)
        found = read_rank_metrics(tmp_path, "rank-0", pids=[process.pid], cwd=str(tmp_path))
        assert found is not None
        assert (found.source, found.shared) == ("out.jsonl", False)
    finally:
        process.communicate()
    assert written_files([process.pid]) == ()
    found = read_rank_metrics(tmp_path, "rank-0", pids=[process.pid], cwd=str(tmp_path))
    assert found is not None
    assert found.shared


def test_only_files_that_changed_since_its_start_and_are_not_anothers_count(tmp_path: Path) -> None:
    now = time.time()
    for name, at in (("old.jsonl", now - 100), ("new.jsonl", now), ("metrics.json", now - 1)):
        (tmp_path / name).write_text(lines(1))
        os.utime(tmp_path / name, (at, at))
    for pid in (5, 6):
        (tmp_path / f"events.out.tfevents.{int(now)}.a.host.{pid}.0").write_bytes(b"")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/x.jsonl").write_text(lines(1))
    found = [os.path.basename(path) for path in changed_files(str(tmp_path), now - 10, [5])]
    assert sorted(found) == [f"events.out.tfevents.{int(now)}.a.host.5.0", "metrics.json", "new.jsonl"]


def test_a_walk_ends_when_its_time_is_up(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines(1))
    assert changed_files(str(tmp_path), 0.0, within_s=0.0) == ()


def test_of_a_long_file_both_ends_are_read_in_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text(lines(*range(100_000)))
    head, tail = read_whole_lines(path)
    assert head.startswith(b'{"step": 0,')
    assert head.endswith(b"\n")
    assert tail.startswith(b"{")
    assert len(head) + len(tail) <= 1024 * 1024
    found = read_rank_metrics(tmp_path, "rank-0", cwd=str(tmp_path))
    assert found is not None
    assert (found.first.step, found.last.step) == (0, 99_999)
    assert "not read" in found.note
