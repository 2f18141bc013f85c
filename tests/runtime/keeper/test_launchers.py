from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from milkweed.runtime.attach_records import (
    ATTACH_VARIABLE,
    AttachedHost,
    AttachPlace,
    decode_attach_place,
)
from milkweed.runtime.errors import InvalidArgument
from milkweed.runtime.keeper.launchers import Placement, plan_run, ranks_of
from milkweed.runtime.mesh import Extent
from milkweed.runtime.records import Launcher, RunRequest

PLACE = Placement(
    run="run-a",
    extent=Extent(hosts=2, gpus=2),
    addresses=["10.0.0.1", "10.0.0.2"],
    workspace="/work",
    python="/venv/bin/python",
    path="/venv/bin:/usr/bin",
    master_port=4711,
    python_path="/lib",
    attach=AttachPlace(
        "mesh-a", "/s/k", (AttachedHost("a-0", "/s/h0"), AttachedHost("a-1", "/s/h1")), run="run-a"
    ),
)


def test_spmd_numbers_the_chosen_ranks_from_zero_and_meets_on_the_first_host() -> None:
    plans = plan_run(RunRequest(("python", "t.py"), ranks="1-3"), PLACE)
    assert ranks_of(plans) == ((0, 0), (1, 1), (2, 1))
    env = plans[1].processes[1].env
    names = (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
    )
    assert [env[name] for name in names] == ["2", "3", "1", "2", "1", "10.0.0.1", "4711"]
    assert plans[0].processes[0].argv == ("/venv/bin/python", "t.py")
    assert plans[0].processes[0].cwd == "/work"


def test_ranks_that_are_to_have_a_device_of_their_own_are_told_which_place_it_has() -> None:
    plans = plan_run(RunRequest(("x",), ranks="1-3", own_device=True), PLACE)
    assert [[one.own_device for one in plan.processes] for plan in plans] == [[0], [0, 1]]
    assert plan_run(RunRequest(("x",)), PLACE)[0].processes[0].own_device is None
    with pytest.raises(InvalidArgument, match="own_device is for launcher='spmd'"):
        plan_run(RunRequest(("x",), launcher="torchrun", own_device=True), PLACE)


def test_the_users_environment_wins() -> None:
    plans = plan_run(RunRequest(("x",), env={"OMP_NUM_THREADS": "4"}), PLACE)
    assert plans[0].processes[0].env["OMP_NUM_THREADS"] == "4"


def test_a_python_file_alone_is_run_by_python() -> None:
    assert plan_run(RunRequest(("t.py", "--x")), PLACE)[0].processes[0].argv == (
        "/venv/bin/python",
        "t.py",
        "--x",
    )


def test_per_host_starts_one_on_each_host_and_single_one_in_all() -> None:
    assert ranks_of(plan_run(RunRequest(("x",), "per_host"), PLACE)) == ((0, 0), (1, 1))
    assert ranks_of(plan_run(RunRequest(("x",), "single", ranks="hosts=1"), PLACE)) == ((0, 1),)


def test_a_controller_is_told_of_all_hosts_and_where_it_is() -> None:
    (plan,) = plan_run(RunRequest(("python", "c.py"), "single", ranks="hosts=1", attach=True), PLACE)
    told = decode_attach_place(plan.processes[0].env[ATTACH_VARIABLE])
    assert PLACE.attach is not None
    assert told == replace(PLACE.attach, here=1)
    assert (plan.host, plan.interpreter) == (1, "")


def test_no_other_run_is_a_controller() -> None:
    launchers: tuple[Launcher, ...] = ("spmd", "per_host", "single")
    for launcher in launchers:
        for plan in plan_run(RunRequest(("x",), launcher), PLACE):
            assert all(ATTACH_VARIABLE not in process.env for process in plan.processes)


def test_the_script_of_a_controller_is_run_by_python_and_finds_modules_where_it_runs() -> None:
    (plan,) = plan_run(RunRequest((), "single", script="import mine", cwd="/here", attach=True), PLACE)
    assert plan.interpreter == "/venv/bin/python"
    assert plan.processes[0].env["PYTHONPATH"] == "/here:/lib"
    own = RunRequest((), "single", script="import mine", env={"PYTHONPATH": "/own"}, attach=True)
    assert plan_run(own, PLACE)[0].processes[0].env["PYTHONPATH"] == "/work:/own"
    other = plan_run(RunRequest((), "single", script="import mine"), PLACE)[0]
    assert (other.interpreter, "PYTHONPATH" in other.processes[0].env) == ("", False)


def test_torchrun_is_one_launcher_a_host_whose_children_are_the_ranks() -> None:
    plans = plan_run(RunRequest(("train.py",), "torchrun"), PLACE)
    assert [plan.child_ranks for plan in plans] == [(0, 1), (2, 3)]
    assert [plan.processes[0].rank for plan in plans] == [-1, -2]
    assert plans[1].processes[0].env["NODE_RANK"] == "1"
    assert plans[0].processes[0].argv[-2:] == ("/venv/bin/python", "train.py")


@pytest.mark.parametrize(
    "request_", [RunRequest((), "torchrun", script="x"), RunRequest(("x",), "torchrun", ranks="0-2")]
)
def test_torchrun_refuses_what_it_cannot_start(request_: RunRequest) -> None:
    with pytest.raises(InvalidArgument):
        plan_run(request_, PLACE)


def test_spmd_sets_every_variable_that_torchrun_sets(tmp_path: Path) -> None:
    script = tmp_path / "dump.py"
    script.write_text("import json, os\nprint('ENV' + json.dumps(dict(os.environ)))\n")
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_CTYPE": "C.UTF-8"}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--no-python",
        sys.executable,
        str(script),
    ]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=True, timeout=120)
    torchrun = json.loads(done.stdout.split("ENV", 1)[1].splitlines()[0])
    ours = plan_run(RunRequest(("x",)), PLACE)[0].processes[0].env
    # The error file is how torchrun's own agent hears of a failure; there is no such agent here.
    assert set(torchrun) - set(clean) - {"TORCHELASTIC_ERROR_FILE"} <= set(ours)
