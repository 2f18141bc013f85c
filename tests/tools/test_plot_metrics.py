"""plot_metrics: on metrics that hosts could tell, and on a real run that reports them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.errors import InvalidArgument, NotFound
from milkweed.runtime.evidence import HostEvidence, RankEvidence
from milkweed.runtime.metrics.series import MetricPoint, RankMetrics, collect
from milkweed.tools.registry import Call, Registry
from tests.fakes import FakeMesh, FakeMeshes
from tests.tools.conftest import Ask

pytestmark = pytest.mark.anyio

PROGRAM = """
import milkweed, os
for step in range(1, 501):
    milkweed.report(step=step, loss=(1 + int(os.environ["RANK"])) / step)
    if step % 100 == 0:
        milkweed.report(step=step, val_loss=2 / step)
"""


@pytest.fixture
def ask(meshes: FakeMeshes) -> Ask:
    return asking(meshes)


def asking(meshes: Any) -> Ask:
    registry = Registry.load("default,train")

    async def report(done: float, total: float | None, message: str) -> None:
        pass

    async def ask(tool: str, /, **arguments: Any) -> Any:
        return await registry.find(tool)(Call(meshes, report, "tester"), arguments)

    return ask


def told(points: list[MetricPoint]) -> RankMetrics | None:
    return collect("milkweed.report", points)


def losses(*values: float, **others: float) -> list[MetricPoint]:
    return [MetricPoint(step, None, {**others, "loss": value}) for step, value in enumerate(values, 1)]


@pytest.fixture
async def run(ask: Ask, mesh: FakeMesh, tmp_path: Path) -> str:
    mesh.profiles = tmp_path / "profiles"
    return str((await ask("run_on_mesh", mesh="demo", command="x")).run)


def tell(mesh: FakeMesh, *metrics: RankMetrics | None) -> None:
    ranks = tuple(RankEvidence(rank, metrics=one) for rank, one in enumerate(metrics))

    async def evidence(run: str, **asked: object) -> tuple[HostEvidence, ...]:
        return (HostEvidence(0, ranks=ranks),)

    mesh.evidence = evidence  # type: ignore[method-assign]


async def test_a_metric_is_a_line_and_ranks_that_tell_the_same_share_a_curve(
    ask: Ask, run: str, mesh: FakeMesh
) -> None:
    same = told(losses(4.0, 2.0, 3.0, lr=0.1))
    tell(mesh, same, same, told(losses(5.0, 4.0, 3.5, lr=0.1)), None)
    lines = (await ask("plot_metrics", target=run)).text.splitlines()
    assert lines[0] == f"{run} (succeeded): ranks 0-2, from milkweed.report"
    assert lines[1].startswith(
        "loss: 4 (step 1) to 3 (step 3), lowest 2 (step 2)  █▁▅  ranks 0-1; at the end"
    )
    assert lines[1].endswith("at the end of all ranks 3 to 3.5")
    assert lines[2].startswith("lr: 0.1 (step 1) to 0.1 (step 3)")
    (file,) = mesh.profiles.iterdir()
    assert lines[3] == f"plot: {file} (any browser), and resource profile://{mesh.id}/{file.name}"
    words = [text.text for text in ET.fromstring(file.read_text()).iter("{http://www.w3.org/2000/svg}text")]
    assert {"loss", "lr", "ranks 0-1", "rank 2", "step"} <= set(words)


async def test_another_plot_of_the_same_second_is_another_file(ask: Ask, run: str, mesh: FakeMesh) -> None:
    tell(mesh, told(losses(1.0)))
    for _ in range(3):
        await ask("plot_metrics", target="demo")
    assert len(list(mesh.profiles.glob(f"{run}-metrics-*.svg"))) == 3


async def test_the_named_metrics_alone_and_a_name_that_is_not_told(
    ask: Ask, run: str, mesh: FakeMesh
) -> None:
    tell(mesh, told(losses(1.0, math.nan, lr=0.1)))
    text = (await ask("plot_metrics", target=run, metrics=["loss"])).text
    assert "loss: 1 (step 1) to nan (step 2)" in text
    assert "lr" not in text
    with pytest.raises(InvalidArgument, match=r"no metric 'los'.*There are: loss, lr"):
        await ask("plot_metrics", target=run, metrics=["los"])


async def test_a_run_without_metrics_and_a_mesh_without_runs(
    ask: Ask, meshes: FakeMeshes, mesh: FakeMesh
) -> None:
    with pytest.raises(NotFound, match="run_not_found"):
        await ask("plot_metrics", target="demo")
    made = await ask("run_on_mesh", mesh="demo", command="x")
    tell(mesh, None)
    with pytest.raises(
        NotFound, match=r"metrics_not_found: .* which tells no metrics so far\. milkweed\.report"
    ):
        await ask("plot_metrics", target=made.run)


async def test_a_real_run_is_plotted_until_its_mesh_is_released(real: Meshes, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    ask = asking(real)
    mesh = (await ask("allocate_mesh", name="t", hosts=2, workspace=str(tmp_path))).mesh
    run = (await ask("run_on_mesh", mesh=mesh, command="python train.py", wait_s=40)).run
    text = (await ask("plot_metrics", target=run)).text
    assert "ranks 0-1, from milkweed.report" in text
    assert re.search(r"^loss: 1 \(step 1\) to 0\.002 \(step 500\), its lowest", text, re.MULTILINE), text
    seldom = r"^val_loss: 0\.02 \(step 100\) to 0\.004 \(step 500\), its lowest  █▄▂▁▁$"
    assert re.search(seldom, text, re.MULTILINE), text
    await ask("release_mesh", mesh=mesh)
    with pytest.raises(NotFound, match="no metrics were kept: its mesh is released"):
        await ask("plot_metrics", target=run)
