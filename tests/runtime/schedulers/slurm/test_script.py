from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import InvalidArgument, Unavailable
from milkweed.runtime.paths import MeshPaths
from milkweed.runtime.records import MeshSpec
from milkweed.runtime.schedulers.slurm.host_task import environment
from milkweed.runtime.schedulers.slurm.script import OPTIONS, check_options, check_paths, render

PATHS = MeshPaths(Path("/state/meshes/mesh-t-abc"), Path("/run/t-abc"), Path("/data/mesh-t-abc"))
TASK = ("/usr/bin/python3", "-I", "host_task.py", "/state/meshes/mesh-t-abc")


def spec(hosts: int = 4, procs: int = 8, minutes: float = 60.0, **options: str) -> MeshSpec:
    return MeshSpec("t", hosts, procs, scheduler="slurm", lease_minutes=minutes, options=options)


def directives(script: str) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH ")]
    return dict(line.partition("=")[::2] for line in lines)


def test_the_job_asks_for_one_task_a_node_with_all_that_its_ranks_need() -> None:
    found = directives(render("mesh-t-abc", spec(), PATHS, TASK))
    assert found == {
        "job-name": "mesh-t-abc",
        "nodes": "4",
        "ntasks-per-node": "1",
        "cpus-per-task": "8",
        "time": "62",
        "no-kill": "",
        "no-requeue": "",
        "signal": "B:USR1@60",
        "open-mode": "append",
        "output": "/state/meshes/mesh-t-abc/slurm/job-%j.log",
        "chdir": "/state/meshes/mesh-t-abc",
    }


def test_options_become_what_sbatch_calls_them() -> None:
    given_ = {
        "partition": "gpu",
        "account": "lab",
        "qos": "high",
        "constraint": "h100&(ib|roce)",
        "gpus_per_node": "h100:8",
        "cpus_per_node": "96",
        "exclusive": "yes",
        "requeue": "yes",
        "mem": "0",
        "warn_s": "300",
        "time_limit_minutes": "600",
    }
    check_options(spec(**given_))
    found = directives(render("mesh-t-abc", spec(**given_), PATHS, TASK))
    assert found["constraint"] == "h100&(ib|roce)"
    assert (found["partition"], found["account"], found["qos"], found["mem"]) == ("gpu", "lab", "high", "0")
    assert (found["gpus-per-node"], found["cpus-per-task"], found["time"]) == ("h100:8", "96", "600")
    assert (found["exclusive"], found["requeue"], found["signal"]) == ("", "", "B:USR1@300")
    assert "no-requeue" not in found


def test_modules_a_prologue_and_an_image_come_before_the_hosts() -> None:
    given_ = {
        "modules": "cuda/12.4,nccl",
        "prologue": "/home/user/my setup.sh",
        "container_image": "nvcr.io#nvidia/pytorch:24.10".replace("#", "/"),
        "container_mounts": "/data:/data",
    }
    check_options(spec(**given_))
    script = render("mesh-t-abc", spec(**given_), PATHS, TASK)
    load, nccl, source, step = (
        script.index(words)
        for words in (
            "module load cuda/12.4 || exit 1",
            "module load nccl || exit 1",
            "source '/home/user/my setup.sh' || exit 1",
            "\nsrun ",
        )
    )
    assert load < nccl < source < step
    line = next(line for line in script.splitlines() if line.startswith("srun "))
    words = shlex.split(line.removesuffix(" &"))
    assert "--container-image=nvcr.io/nvidia/pytorch:24.10" in words
    assert "--container-mounts=/state:/state,/run:/run,/data:/data" in words
    assert words[-len(TASK) :] == list(TASK)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("colour", "red"),
        ("partition", "gpu short"),
        ("partition", "gpu\n#SBATCH --uid=0"),
        ("constraint", "$(reboot)"),
        ("modules", "cuda;reboot"),
        ("prologue", "setup.sh"),
        ("prologue", "/tmp/$(reboot)"),
        ("exclusive", "maybe"),
        ("gpus_per_node", "0"),
        ("time_limit_minutes", "-1"),
        ("warn_s", "soon"),
        ("mem", ""),
    ],
)
def test_what_would_be_another_script_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        check_options(spec(**{name: value}))


@given(st.sampled_from(sorted(OPTIONS)), st.text(max_size=20))
def test_no_option_that_is_let_through_adds_a_line_or_a_command(name: str, value: str) -> None:
    try:
        check_options(spec(**{name: value}))
    except InvalidArgument:
        return
    plain = render("mesh-t-abc", spec(), PATHS, TASK).splitlines()
    script = render("mesh-t-abc", spec(**{name: value}), PATHS, TASK)
    assert len(script.splitlines()) <= len(plain) + (value.count(",") + 1 if name == "modules" else 1)
    assert not {"$(", "`", ";"} & set(value)


def test_a_directory_that_a_script_cannot_name_is_refused() -> None:
    check_paths(PATHS)
    for wrong in ("/my state/meshes/mesh-t", "/state$x/mesh-t", "/100%/mesh-t"):
        with pytest.raises(Unavailable, match="directory_unusable"):
            check_paths(replace(PATHS, root=Path(wrong)))


def test_bash_can_read_it() -> None:
    script = render("mesh-t-abc", spec(modules="cuda/12.4", prologue="/a b/c.sh"), PATHS, TASK)
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_ranks_are_not_taken_for_tasks_of_the_job_step() -> None:
    found = {
        "PATH": "/bin",
        "SLURM_JOB_ID": "12",
        "SLURM_NTASKS": "4",
        "SLURM_PROCID": "2",
        "PMI_RANK": "2",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "MILKWEED_HOST_ID": "another.0",
    }
    assert environment(found, {"MILKWEED_HOST_ID": "mesh-t.2"}, "n7", 3) == {
        "PATH": "/bin",
        "SLURM_JOB_ID": "12",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "MILKWEED_HOST_ID": "mesh-t.2",
        "MILKWEED_HOST_NAME": "n7",
        "MILKWEED_HOST_LIFE": "3",
    }
