"""What becomes of a mesh on a real Slurm: in the queue, on its nodes, and when Slurm takes it away."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from milkweed.runtime.client import Meshes, open_meshes
from milkweed.runtime.client.mesh import Mesh
from milkweed.runtime.errors import Conflict, InvalidArgument, Unavailable
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec, MeshView, RunRequest
from tests.clusters.conftest import Ask
from tests.clusters.slurm import GPUS, NODES, Slurm
from tests.runtime.processes import eventually, keeper_of, of_mesh

pytestmark = pytest.mark.anyio

SLEEP = ("sleep", "600")
_WITHIN_S = 60.0


def spec(workspace: Path, hosts: int = 2, procs: int = 1, minutes: float = 60.0, **options: str) -> MeshSpec:
    return MeshSpec(
        "t", hosts, procs, scheduler="slurm", workspace=str(workspace), lease_minutes=minutes, options=options
    )


async def becomes(mesh: Mesh, is_so: Callable[[MeshView], object], within_s: float = _WITHIN_S) -> MeshView:
    """The view once it is so."""
    view = await mesh.view()
    with anyio.move_on_after(within_s):
        while not is_so(view):
            await anyio.sleep(0.05)
            view = await mesh.view()
    assert is_so(view), (view.state, view.reason, [(one.host, one.state, one.reason) for one in view.hosts])
    return view


async def told(mesh: Mesh) -> list[str]:
    return [f"{one.event.kind}: {one.event.detail}" for one in await mesh.events(100) if one.host < 0]


async def test_hosts_are_nodes_and_ranks_see_their_gpus(
    slurm: Slurm, ask: Ask, meshes: Meshes, tmp_path: Path
) -> None:
    mesh = await ask(
        "allocate_mesh",
        name="t",
        hosts=4,
        procs_per_host=2,
        scheduler="slurm",
        workspace=str(tmp_path),
        options={"gpus_per_node": "2"},
    )
    assert (mesh.state, mesh.workspace_mode) == ("ready", "shared")
    status = await ask("mesh_status", mesh=mesh.mesh)
    assert sorted(host.name for host in status.host_list) == [f"n{number}" for number in range(NODES)]
    script = 'echo "$RANK of $WORLD_SIZE sees $CUDA_VISIBLE_DEVICES, tasks: ${SLURM_NTASKS:-none}"'
    run = await ask("run_on_mesh", mesh=mesh.mesh, script=script)
    assert run.state == "succeeded"
    output = (await ask("read_run_output", run=run.run)).text
    assert "7 of 8 sees 0,1, tasks: none" in output
    released = await ask("release_mesh", mesh=mesh.mesh)
    assert released.processes_ended == 0
    assert of_mesh(mesh.mesh) == []
    assert slurm.job_of(mesh.mesh) == ""
    assert slurm.idle() == NODES


async def test_a_hang_is_diagnosed_and_released(ask: Ask, slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, time\nprint('ready', flush=True)\n\n\ndef wait_for_peer():\n    time.sleep(600)\n\n\n"
        "def step():\n    while not os.path.exists('never'):\n        time.sleep(600)\n\n\n"
        "wait_for_peer() if os.environ['RANK'] == '1' else step()\n"
    )
    mesh = await ask("allocate_mesh", name="t", hosts=2, scheduler="slurm", workspace=str(tmp_path))
    run = await ask("run_on_mesh", mesh=mesh.mesh, command="python train.py", wait_s=0)
    assert (await ask("wait_for_run", run=run.run, pattern="ready", timeout_s=40)).matched
    stacks = (await ask("stack_dump", target=run.run)).text
    assert "wait_for_peer" in stacks
    assert "step" in stacks
    diagnosis = await ask("diagnose_run", run=run.run)
    assert diagnosis.run == run.run
    released = await ask("release_mesh", mesh=mesh.mesh)
    assert released.runs_ended == [run.run]
    assert of_mesh(mesh.mesh) == []


async def test_a_dry_run_shows_the_script_and_has_no_effect(ask: Ask, slurm: Slurm, tmp_path: Path) -> None:
    plan = await ask(
        "allocate_mesh",
        name="t",
        hosts=2,
        scheduler="slurm",
        workspace=str(tmp_path),
        lease_minutes=30,
        options={"partition": "gpu", "gpus_per_node": str(GPUS), "exclusive": "yes"},
        dry_run=True,
    )
    assert plan.state == "planned"
    for line in ("--nodes=2", "--partition=gpu", f"--gpus-per-node={GPUS}", "--exclusive", "--time=32"):
        assert f"#SBATCH {line}\n" in plan.script
    assert slurm.ask("squeue", "-h") == ""


async def test_what_slurm_cannot_give_is_refused(meshes: Meshes, slurm: Slurm, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"no partition nowhere; partitions: gpu, short, urgent"):
        await meshes.allocate(spec(tmp_path, partition="nowhere"))
    with pytest.raises(InvalidArgument, match="partition short gives at most 10 min"):
        await meshes.allocate(spec(tmp_path, partition="short"))
    with pytest.raises(InvalidArgument, match="partition gpu has 4 nodes; 9 hosts were asked for"):
        await meshes.allocate(spec(tmp_path, hosts=9))
    with pytest.raises(Unavailable, match=r"allocation_failed: .*[Rr]equested node configuration"):
        await meshes.allocate(spec(tmp_path, gpus_per_node="8"))
    assert slurm.ask("squeue", "-h") == ""
    assert await meshes.list() == ()


async def test_a_full_queue_is_told_and_the_mesh_starts_by_itself(
    ask: Ask, meshes: Meshes, slurm: Slurm, tmp_path: Path
) -> None:
    other = slurm.submit("--nodes=4", "--exclusive", "--time=60")
    await eventually(lambda: slurm.idle() == 0)
    second = slurm.submit("--nodes=4", "--exclusive", "--time=60")
    with anyio.fail_after(20):
        result = await ask("allocate_mesh", name="t", hosts=2, scheduler="slurm", workspace=str(tmp_path))
    assert result.state == "queued"
    assert "partition gpu" in result.reason
    mesh = await meshes.get(result.mesh)
    view = await becomes(mesh, lambda view: "number 2 of 2" in view.reason and view.expected_start_at)
    assert "expected to start in" in (await ask("mesh_status", mesh=result.mesh)).reason
    assert view.lease_left_s == 3600  # which has not begun
    with pytest.raises(
        Conflict, match=r"mesh_not_ready: .* waits for its hosts: job .* waits in partition gpu"
    ):
        await mesh.start_run(RunRequest(SLEEP))
    slurm.ask("scancel", other, second)
    await becomes(mesh, lambda view: view.state == "ready")
    run = await mesh.start_run(RunRequest(("true",)))
    assert (await mesh.wait_run(run.run, timeout_s=30)).state == "succeeded"


async def test_a_mesh_that_waits_is_taken_out_of_the_queue(
    meshes: Meshes, slurm: Slurm, tmp_path: Path
) -> None:
    slurm.submit("--nodes=4", "--exclusive")
    await eventually(lambda: slurm.idle() == 0)
    mesh = await meshes.allocate(spec(tmp_path))
    assert (await mesh.view()).state == "queued"
    await mesh.release()
    assert slurm.job_of(mesh.id) == ""


async def test_a_keeper_killed_while_it_waits_is_followed_by_one_that_waits_on(
    places: Places, slurm: Slurm, tmp_path: Path
) -> None:
    other = slurm.submit("--nodes=4", "--exclusive")
    await eventually(lambda: slurm.idle() == 0)
    async with open_meshes(places) as meshes:  # a server that ends
        mesh = await meshes.allocate(spec(tmp_path))
        assert (await mesh.view()).state == "queued"
        job = slurm.job_of(mesh.id)
    keeper = keeper_of(mesh.id)
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    slurm.ask("scancel", other)
    await eventually(lambda: len(of_mesh(mesh.id)) >= 2, 30)  # the hosts start without a keeper
    async with open_meshes(places) as meshes:
        mesh = await meshes.get(mesh.id)
        await becomes(mesh, lambda view: view.state == "ready")
        assert slurm.job_of(mesh.id) == job
        run = await mesh.start_run(RunRequest(("true",)))
        assert (await mesh.wait_run(run.run, timeout_s=30)).state == "succeeded"
        await mesh.release()
    assert slurm.job_of(mesh.id) == ""


async def test_a_keeper_killed_under_a_run_finds_the_hosts_again(
    meshes: Meshes, slurm: Slurm, tmp_path: Path
) -> None:
    mesh = await meshes.allocate(spec(tmp_path))
    run = await mesh.start_run(RunRequest(SLEEP))
    keeper = keeper_of(mesh.id)
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    await eventually(lambda: keeper_of(mesh.id) not in (None, keeper), 20)
    await becomes(mesh, lambda view: view.state == "ready")
    assert (await mesh.run(run.run)).state == "running"


async def test_a_killed_node_costs_its_host_and_no_other(
    meshes: Meshes, slurm: Slurm, tmp_path: Path
) -> None:
    mesh = await meshes.allocate(spec(tmp_path, hosts=3))
    run = await mesh.start_run(RunRequest(SLEEP))
    slurm.kill_node(1)
    view = await becomes(mesh, lambda view: view.state == "degraded")
    assert [host.state for host in view.hosts] == ["ready", "lost", "ready"]
    assert (await mesh.wait_run(run.run, timeout_s=30)).state == "lost"
    rest = await mesh.start_run(RunRequest(("true",), ranks="0,2"))
    assert (await mesh.wait_run(rest.run, timeout_s=30)).state == "succeeded"


async def test_a_job_cancelled_from_outside_is_told_as_such(
    meshes: Meshes, slurm: Slurm, tmp_path: Path
) -> None:
    mesh = await meshes.allocate(spec(tmp_path))
    run = await mesh.start_run(RunRequest(SLEEP))
    slurm.ask("scancel", slurm.job_of(mesh.id))
    view = await becomes(mesh, lambda view: view.state == "released")
    assert "was cancelled from outside" in view.reason
    found = await mesh.run(run.run)
    assert found.state == "lost"
    assert "was cancelled from outside" in found.reason
    await eventually(lambda: of_mesh(mesh.id) == [])
    assert await meshes.list() == ()


async def test_a_job_cancelled_in_the_queue_is_told_as_such(
    meshes: Meshes, slurm: Slurm, tmp_path: Path
) -> None:
    slurm.submit("--nodes=4", "--exclusive")
    await eventually(lambda: slurm.idle() == 0)
    mesh = await meshes.allocate(spec(tmp_path))
    slurm.ask("scancel", slurm.job_of(mesh.id))
    view = await becomes(mesh, lambda view: view.state == "released")
    assert "allocation_failed: job" in view.reason
    assert "was cancelled from outside" in view.reason


async def starts_now(mesh: Mesh, slurm: Slurm, job: str) -> MeshView:
    """The view of the mesh that is ready again. Slurm holds a job back for two minutes from when its end is
    complete, which may be after it is told as queued."""

    def is_ready(view: MeshView) -> bool:
        if view.state == "queued" and slurm.ask("squeue", "-h", "-j", job, "-o", "%T") == "PENDING":
            slurm.try_to("scontrol", "update", f"JobId={job}", "StartTime=now")
        return view.state == "ready"

    return await becomes(mesh, is_ready)


async def test_a_preempted_mesh_waits_and_comes_back(meshes: Meshes, slurm: Slurm, tmp_path: Path) -> None:
    mesh = await meshes.allocate(spec(tmp_path, hosts=2, requeue="yes", exclusive="yes"))
    run = await mesh.start_run(RunRequest(SLEEP))
    job = slurm.job_of(mesh.id)
    other = slurm.submit("-p", "urgent", "--nodes=4", "--exclusive")
    view = await becomes(mesh, lambda view: view.state == "queued")
    assert (await mesh.run(run.run)).state == "lost"
    assert any("preempted" in line for line in await told(mesh)), await told(mesh)
    assert of_mesh(mesh.id) == []
    slurm.ask("scancel", other)
    view = await starts_now(mesh, slurm, job)
    assert view.lease_left_s > 3500  # which has begun again
    again = await mesh.start_run(RunRequest(("true",)))
    assert (await mesh.wait_run(again.run, timeout_s=30)).state == "succeeded"


async def test_a_preempted_mesh_that_is_not_to_wait_is_over(
    meshes: Meshes, slurm: Slurm, tmp_path: Path
) -> None:
    mesh = await meshes.allocate(spec(tmp_path, hosts=2, exclusive="yes"))
    slurm.submit("-p", "urgent", "--nodes=4", "--exclusive")
    view = await becomes(mesh, lambda view: view.state == "released")
    assert "preempted" in view.reason


async def test_a_requeued_job_brings_the_mesh_back(meshes: Meshes, slurm: Slurm, tmp_path: Path) -> None:
    mesh = await meshes.allocate(spec(tmp_path, hosts=2, requeue="yes"))
    job = slurm.job_of(mesh.id)
    slurm.ask("scontrol", "requeue", job)
    await becomes(mesh, lambda view: view.state == "queued")
    assert any(f"job {job} is queued again" in line for line in await told(mesh)), await told(mesh)
    await starts_now(mesh, slurm, job)
    assert slurm.job_of(mesh.id) == job


async def test_the_end_of_the_time_limit_is_told_before_and_after(
    meshes: Meshes, slurm: Slurm, tmp_path: Path
) -> None:
    mesh = await meshes.allocate(spec(tmp_path))
    job = slurm.job_of(mesh.id)
    slurm.ask("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    await becomes(mesh, lambda view: any("will end job" in one for one in view.warnings), 90)
    view = await becomes(mesh, lambda view: view.state == "released", 150)
    assert view.reason == f"job {job} reached its time limit"


async def test_the_lease_ends_before_the_job(meshes: Meshes, slurm: Slurm, tmp_path: Path) -> None:
    mesh = await meshes.allocate(spec(tmp_path, minutes=0.3))
    view = await becomes(mesh, lambda view: view.state == "released")
    assert view.reason == "the lease ended"
    assert slurm.job_of(mesh.id) == ""


async def test_a_lease_is_extended_where_slurm_allows_it(
    meshes: Meshes, slurm: Slurm, tmp_path: Path
) -> None:
    mesh = await meshes.allocate(spec(tmp_path, minutes=10))
    limit: Any = slurm.ask("squeue", "-h", "-n", mesh.id, "-o", "%l")
    assert limit == "12:00"
    view = await mesh.extend_lease(30)
    assert view.lease_left_s > 39 * 60
    assert slurm.ask("squeue", "-h", "-n", mesh.id, "-o", "%l") == "43:00"


async def test_a_job_that_fails_to_start_shows_its_log(meshes: Meshes, slurm: Slurm, tmp_path: Path) -> None:
    prologue = tmp_path / "prologue.sh"
    prologue.write_text("echo no such compiler on this node >&2; return 7\n")
    with pytest.raises(
        Unavailable, match=r"allocation_failed: job \d+ failed .* no such compiler on this node"
    ):
        await meshes.allocate(spec(tmp_path, prologue=str(prologue)))
    assert await meshes.list() == ()


async def test_hosts_that_fail_give_the_nodes_back_and_their_last_words_are_told(
    meshes: Meshes, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'milkweed.runtime.agent' in sys.orig_argv:\n"
        "    print('out of luck', flush=True); os._exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    with pytest.raises(
        Unavailable, match=r"allocation_failed: host .*: its agent failed \(exit 3\): out of luck"
    ):
        await meshes.allocate(spec(tmp_path))
    assert await meshes.list() == ()
    assert slurm.ask("squeue", "-h") == ""


async def test_a_prologue_is_in_the_environment_of_ranks(ask: Ask, slurm: Slurm, tmp_path: Path) -> None:
    prologue = tmp_path / "prologue.sh"
    prologue.write_text("export COMPILER=good\n")
    mesh = await ask(
        "allocate_mesh",
        name="t",
        hosts=2,
        scheduler="slurm",
        workspace=str(tmp_path),
        options={"prologue": str(prologue)},
    )
    run = await ask("run_on_mesh", mesh=mesh.mesh, script="echo $COMPILER")
    assert "good" in run.output_tail


async def test_what_slurm_offers_is_listed(ask: Ask, slurm: Slurm) -> None:
    found = {one.scheduler: one for one in (await ask("list_schedulers")).schedulers}
    assert found["slurm"].available
    assert "gpu (default): 4 of 4 idle" in found["slurm"].hosts
    assert "gpu:h100:4" in found["slurm"].devices
    assert "short: at most 10 min" in found["slurm"].limits


async def test_doctor_says_that_slurm_can_be_used(slurm: Slurm, places: Places) -> None:
    env = {**os.environ, "MILKWEED_STATE_DIR": str(places.state), "MILKWEED_RUNTIME_DIR": str(places.runtime)}
    words = [sys.executable, "-m", "milkweed", "doctor", "--scheduler", "slurm", "-o", "json"]
    done = await anyio.run_process(words, env=env, check=False)
    found = {check["name"]: check for check in json.loads(done.stdout)}
    assert {name: check["state"] for name, check in found.items() if name.startswith("slurm")} == {
        "slurm": "ok",
        "slurm files": "ok",
        "slurm nodes": "ok",
        "slurm job": "ok",
    }
    assert "gpu (default): 4 of 4 idle" in found["slurm"]["detail"]


async def test_a_run_from_the_command_line_waits_for_its_hosts(
    slurm: Slurm, places: Places, tmp_path: Path
) -> None:
    other = slurm.submit("-p", "short", "--nodes=4", "--exclusive")
    await eventually(lambda: slurm.idle() == 0)
    env = {**os.environ, "MILKWEED_STATE_DIR": str(places.state), "MILKWEED_RUNTIME_DIR": str(places.runtime)}
    words = [
        "run",
        "--scheduler",
        "slurm",
        "--hosts",
        "2",
        "--option",
        "partition=gpu",
        "--workspace",
        str(tmp_path),
    ]
    async with await anyio.open_process(
        [sys.executable, "-m", "milkweed", *words, "--", "hostname"], env=env
    ) as process:
        assert process.stderr is not None
        said = b""
        async for chunk in process.stderr:
            said += chunk
            if b"waits in partition gpu" in said:
                break
        slurm.ask("scancel", other)
        assert process.stdout is not None
        output = b"".join([chunk async for chunk in process.stdout])
        assert await process.wait() == 0, said
    assert os.uname().nodename.encode() in output
    assert slurm.ask("squeue", "-h") == ""
