"""`milkweed.report` in programs of all kinds: what it writes is read back."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import textwrap
import threading
import venv
from pathlib import Path
from typing import Any

import pytest

import milkweed
from milkweed.runtime.agent.hook_protocol import hook_environment
from milkweed.runtime.metrics import reporting
from milkweed.runtime.metrics.json_lines import find_note, parse_reported
from milkweed.runtime.metrics.reading import metric_files, read_rank_metrics
from milkweed.runtime.metrics.reporting import Reporter
from milkweed.runtime.metrics.series import MetricPoint


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process is rank 3 of a run, whose directory it is."""
    for name in ("RANK", "MILKWEED_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in hook_environment(tmp_path, "rank-3", "").items():
        if name.startswith("MILKWEED"):
            monkeypatch.setenv(name, value)
    return tmp_path


def reported(directory: Path) -> list[MetricPoint]:
    return [
        point for path in metric_files(directory, "rank-3") for point in parse_reported(path.read_bytes())
    ]


def test_what_is_reported_can_be_read(rank: Path) -> None:
    reporter = Reporter()
    reporter.report(3, {"loss": 0.5, "lr": 1e-3, "tokens": 12, "done": True})
    (point,) = reported(rank)
    assert (point.step, point.values) == (3, {"loss": 0.5, "lr": 1e-3, "tokens": 12.0, "done": 1.0})
    assert metric_files(rank, "rank-3") == (rank / f"rank-3.metrics.{os.getpid()}",)


def test_outside_a_run_it_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILKWEED_RUN_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reporting, "_reporter", Reporter())
    milkweed.report(step=1, loss=0.5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_so(rank: Path, value: float) -> None:
    Reporter().report(1, {"loss": value})
    (point,) = reported(rank)
    assert str(point.values["loss"]) == str(value)


class Scalar:
    def __float__(self) -> float:
        return 0.25


class Broken:
    def __float__(self) -> float:
        raise RuntimeError("no")


@pytest.mark.parametrize("value", ["text", b"0.5", None, [1.0], 1j, Broken(), 10**400, object])
def test_what_is_no_number_is_left_out(rank: Path, value: Any) -> None:
    Reporter().report(1, {"odd": value, "scalar": Scalar()})
    (point,) = reported(rank)
    assert point.values == {"scalar": 0.25}


@pytest.mark.parametrize(("step", "kept"), [(7.0, 7), (None, None), ("x", None), (Scalar(), None), (True, 1)])
def test_steps(rank: Path, step: Any, kept: int | None) -> None:
    Reporter().report(step, {})
    (point,) = reported(rank)
    assert point.step == kept


def test_names_of_any_kind(rank: Path) -> None:
    names = {'a"b': 1.0, "ä\n": 2.0, "\ud800": 3.0, "x" * 1000: 4.0}
    Reporter().report(1, names)
    (point,) = reported(rank)
    assert list(point.values.values()) == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_tensors_of_one_element_and_numpy_scalars_without_a_warning(tmp_path: Path) -> None:
    code = """
        import numpy, torch, milkweed
        weight = torch.ones(1, requires_grad=True)
        loss = (weight * 2).sum()
        milkweed.report(step=torch.tensor(3), loss=loss, one=numpy.float32(0.5), many=torch.ones(2))
        """
    done = run(tmp_path, code, "-W", "error")
    assert done.stderr == ""
    (point,) = reported(tmp_path)
    assert (point.step, point.values) == (3, {"loss": 2.0, "one": 0.5})


def run(
    directory: Path, code: str, *flags: str, path: str | None = None, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Runs code as rank 3 would be, with the hook."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MILKWEED", "RANK"))}
    env |= hook_environment(directory, "rank-3", os.pathsep.join(sys.path) if path is None else path)
    return subprocess.run(
        [python, *flags, "-c", textwrap.dedent(code)],
        env=env,
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def test_it_costs_a_program_no_import_of_ours(tmp_path: Path) -> None:
    code = """
        import sys
        before = set(sys.modules)
        import milkweed
        milkweed.report(step=1, loss=0.5)
        print(*sorted(set(sys.modules) - before))
        """
    loaded = {name for name in run(tmp_path, code).stdout.split() if name.startswith("milkweed")}
    assert loaded == {
        "milkweed",
        "milkweed.runtime",
        "milkweed.runtime.metrics",
        "milkweed.runtime.metrics.reporting",
    }
    assert len(reported(tmp_path)) == 1


def test_where_milkweed_is_not_installed_the_hook_offers_report_and_nothing_else(tmp_path: Path) -> None:
    code = """
        import milkweed
        milkweed.report(step=1, loss=0.5)
        print(sorted(name for name in dir(milkweed) if not name.startswith("_")))
        try:
            import milkweed.runtime
        except ModuleNotFoundError as error:
            print(error)
        """
    venv.create(tmp_path / "venv", symlinks=True)
    done = run(tmp_path, code, path="", python=str(tmp_path / "venv/bin/python"))
    assert done.stderr == ""
    assert "report" in done.stdout
    assert "No module named 'milkweed.runtime'" in done.stdout
    assert [point.values for point in reported(tmp_path)] == [{"loss": 0.5}]


def test_a_milkweed_of_the_users_own_comes_first(tmp_path: Path) -> None:
    (tmp_path / "milkweed.py").write_text("name = 'theirs'")
    assert run(tmp_path, "import milkweed; print(milkweed.name)", path="").stdout == "theirs\n"


def test_threads_lose_nothing_and_tear_no_line(rank: Path) -> None:
    reporter = Reporter()
    threads = [
        threading.Thread(
            target=lambda first=first: [reporter.report(first + n, {"loss": 0.5}) for n in range(500)]
        )
        for first in range(0, 4000, 500)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(point.step or 0 for point in reported(rank)) == list(range(4000))


def test_a_fork_has_a_file_of_its_own(tmp_path: Path) -> None:
    code = """
        import os, milkweed
        milkweed.report(step=1, loss=1.0)
        if not os.fork():
            milkweed.report(step=2, loss=2.0)
            os._exit(0)
        os.wait()
        milkweed.report(step=3, loss=3.0)
        """
    run(tmp_path, code)
    steps = [[p.step for p in parse_reported(f.read_bytes())] for f in metric_files(tmp_path, "rank-3")]
    assert steps == [[1, 3], [2]]


def test_a_descriptor_that_the_program_took_over_is_not_written_to(tmp_path: Path) -> None:
    code = """
        import os, milkweed
        milkweed.report(step=1, loss=1.0)
        os.closerange(3, 100)
        mine = open("mine", "wb", buffering=0)
        milkweed.report(step=2, loss=2.0)
        milkweed.report(step=3, loss=3.0)
        """
    run(tmp_path, code)
    assert (tmp_path / "mine").read_bytes() == b""
    assert reported(tmp_path)[-1].step == 3


def test_it_never_raises(tmp_path: Path) -> None:
    code = """
        import os, shutil, milkweed
        milkweed.report(step=1, loss=1.0)
        shutil.rmtree(os.environ["MILKWEED_RUN_DIR"], ignore_errors=True)
        milkweed.report(step=2)
        os.environ["MILKWEED_RUN_DIR"] = "/nowhere/at/all"
        if not os.fork():
            milkweed.report(step=3)
            os._exit(0)
        raise SystemExit(os.wait()[1])
        """
    (tmp_path / "run").mkdir()
    run(tmp_path / "run", code)


def test_a_long_run_stays_within_its_limit_and_keeps_its_ends_and_the_first_bad_value(rank: Path) -> None:
    limit = 64 * 1024
    reporter = Reporter(limit)
    for step in range(20_000):
        reporter.report(step, {"loss": math.nan if step >= 19_000 else 0.5})
    (path,) = metric_files(rank, "rank-3")
    assert limit // 2 < path.stat().st_size <= limit
    steps = {point.step for point in reported(rank)}
    assert {0, 1, 2, 19_000} <= steps
    assert "not every report is kept" in find_note(path.read_bytes())
    found = read_rank_metrics(rank, "rank-3")
    assert found is not None
    assert (found.first_bad[0].step, found.note) == (19_000, find_note(path.read_bytes()))


def test_a_report_that_is_left_out_is_still_a_sign_of_life(
    rank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter = Reporter(4096)
    for step in range(1000):
        reporter.report(step, {"loss": 0.5})
    (path,) = metric_files(rank, "rank-3")
    os.utime(path, (1.0, 1.0))
    size = path.stat().st_size
    reporter._told_at = 0.0
    reporter.report(1001, {"loss": 0.5})
    assert path.stat().st_size == size
    assert path.stat().st_mtime > 1.0


def test_lines_are_json(rank: Path) -> None:
    Reporter().report(3, {"loss": 0.5})
    (path,) = metric_files(rank, "rank-3")
    at, step, values = json.loads(path.read_text())
    assert (at > 1e9, step, values) == (True, 3, {"loss": 0.5})
