from __future__ import annotations

from pathlib import Path

import pytest

from milkweed.runtime.engines import EmbeddedEngine
from milkweed.runtime.errors import InvalidArgument, Unavailable
from milkweed.runtime.paths import MeshPaths
from milkweed.runtime.records import MeshSpec
from milkweed.runtime.schedulers.slurm import SlurmScheduler
from milkweed.runtime.schedulers.slurm.asking import Asking
from milkweed.runtime.schedulers.slurm.commands import Commands, Refused, own_environment, refusal
from milkweed.runtime.schedulers.slurm.jobs import Job, Place

pytestmark = pytest.mark.anyio


def stand_in(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of that name, which is found before any other."""
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


async def test_a_command_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "squeue", "exec sleep 60", monkeypatch)
    with pytest.raises(Unavailable, match="scheduler_unusable: squeue did not answer within 0 s"):
        await Commands(0.1).ask("squeue")


async def test_a_machine_without_slurm_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert not Commands.found()
    with pytest.raises(Unavailable, match=r"there is no sbatch here\. Run Milkweed on a login node"):
        await Commands().ask("sbatch")


async def test_a_controller_that_is_down_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    stand_in(tmp_path, "squeue", f"echo '{words}' >&2; exit 1", monkeypatch)
    with pytest.raises(Unavailable, match="scheduler_unusable: Slurm does not answer"):
        await Commands().ask("squeue")


async def test_a_job_is_asked_for_in_json_where_scontrol_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
if [ "$1" = --version ]; then echo slurm 23.11.4; exit; fi
if [ "${@: -1}" = --json ]; then
    echo '{"jobs": [{"job_id": 7, "job_state": ["RUNNING"], "nodes": "n[1-2]"}]}'
    exit
fi
echo JobId=7 JobState=FAILED
"""
    stand_in(tmp_path, "scontrol", script, monkeypatch)
    assert await Asking(Commands()).job("7") == Job(7, states=("RUNNING",), nodes=("n1", "n2"))


async def test_json_that_is_not_understood_is_asked_for_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
if [ "$1" = --version ]; then echo slurm 29.05.0; exit; fi
if [ "${@: -1}" = --json ]; then echo '{"work": []}'; exit; fi
echo JobId=7 JobState=RUNNING
"""
    stand_in(tmp_path, "scontrol", script, monkeypatch)
    assert await Asking(Commands()).job("7") == Job(7, states=("RUNNING",))


async def test_an_old_queue_is_read_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "scontrol", "echo slurm 20.02.7", monkeypatch)
    stand_in(tmp_path, "squeue", "printf '7|10\\n8|20\\n9_[1-4]|5\\n'", monkeypatch)
    place = await Asking(Commands()).place(Job(7, states=("PENDING",), partition="gpu", priority=10))
    assert place == Place(2, 2)


async def test_a_job_that_slurm_does_not_know_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'if [ "$1" = --version ]; then echo slurm 22.05.8; exit; fi; echo Invalid job id >&2; exit 1'
    stand_in(tmp_path, "scontrol", script, monkeypatch)
    assert await Asking(Commands()).job("7") is None
    with pytest.raises(Refused, match="Invalid job id"):
        await Commands().ask("scontrol", "show", "job", "7")


async def test_any_other_answer_is_not_the_end_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for said in ("echo Zero Bytes were transmitted or received >&2; exit 1", "echo hello"):
        script = f'if [ "$1" = --version ]; then echo slurm 22.05.8; exit; fi; {said}'
        stand_in(tmp_path, "scontrol", script, monkeypatch)
        with pytest.raises(Unavailable, match="scheduler_unusable"):
            await Asking(Commands()).job("7")


def test_a_refusal_names_what_mends_it() -> None:
    words = "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed"
    error = refusal(words)
    assert error.code == "allocation_failed"
    assert "invalid partition specified: x" in error.cause
    assert "list_schedulers" in error.next_step


def test_a_job_that_we_run_in_does_not_go_over_to_ours() -> None:
    found = {"SLURM_CONF": "/c", "SLURM_JOB_ID": "3", "SLURM_MEM_PER_NODE": "9", "SBATCH_ACCOUNT": "lab"}
    assert own_environment(found) == {"SLURM_CONF": "/c", "SBATCH_ACCOUNT": "lab"}


async def test_nodes_that_are_other_machines_are_refused_for_an_engine_of_one_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "sinfo", "echo 'gpu*|up|infinite|0/2/0/2|gpu:8|96|1000|(null)'", monkeypatch)
    nodes = [f"NodeName=n{k} NodeAddr=203.0.113.{k} NodeHostName=n{k} Partitions=gpu" for k in (1, 2)]
    stand_in(tmp_path, "scontrol", f"cat <<'E'\n{chr(10).join(nodes)}\nE", monkeypatch)
    said = "sbatch: Job 3 to start at 2026-12-01T00:00:00 using 2 processors on nodes n[1-2]"
    stand_in(tmp_path, "sbatch", f"cat >/dev/null; echo '{said}' >&2", monkeypatch)
    paths = MeshPaths(tmp_path / "mesh-t-abc", tmp_path / "r", tmp_path / "d")
    plan = await SlurmScheduler().plan("mesh-t-abc", MeshSpec("t", 2, 1, scheduler="slurm"), paths)
    assert plan.elsewhere == "n1, n2 are other machines"
    assert plan.expected_start_at is not None
    with pytest.raises(
        InvalidArgument, match="unsupported: the embedded engine reaches hosts of this machine"
    ):
        EmbeddedEngine().check(plan)
    assert list(tmp_path.glob("mesh*")) == []
