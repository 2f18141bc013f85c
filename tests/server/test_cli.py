"""The command line: the same tools as over MCP, for people and scripts."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from milkweed.runtime.errors import InvalidArgument
from milkweed.runtime.records import Exit, MeshSpec, RunRequest, RunView
from milkweed.server.cli import COMMANDS, following, main
from milkweed.server.cli.call import parse_pairs
from milkweed.server.cli.checks import CHECKS, check_directories, check_disk, check_index
from tests.fakes import FakeMeshes, end_run
from tests.server.conftest import MILKWEED, Cli


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        assert f"usage: milkweed {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["call"], ["logs"], ["run"], ["controller", "demo"], ["serve", "--nope"]]
)
def test_a_wrong_command_line_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("milkweed ")


def test_the_package_run_as_a_program_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "milkweed", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "milkweed"), done.stderr


def test_values_are_json_where_they_can_be() -> None:
    properties = {"name": {"type": "string"}, "hosts": {"type": "integer"}}
    pairs = [
        "name=12",
        "hosts=12",
        "command=python x.py",
        'argv=["a", "b"]',
        "env={}",
        "dry_run=true",
        "a=b=c",
    ]
    assert parse_pairs(pairs, properties) == {
        "name": "12",
        "hosts": 12,
        "command": "python x.py",
        "argv": ["a", "b"],
        "env": {},
        "dry_run": True,
        "a": "b=c",
    }
    with pytest.raises(InvalidArgument, match="is not key=value"):
        parse_pairs(["hosts"], properties)


def test_a_command_is_text_also_where_it_is_json() -> None:
    either = {"command": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}}
    assert parse_pairs(["command=true"], either) == {"command": "true"}
    assert parse_pairs(['command=["true"]'], either) == {"command": ["true"]}


def test_a_mesh_from_allocation_to_release(cli: Cli, tmp_path: Path) -> None:
    allocated = cli("call", "allocate_mesh", "name=demo", "hosts=2", "-o", "json")
    assert allocated.returncode == 0, allocated.stderr
    mesh = json.loads(allocated.stdout)["mesh"]
    assert json.loads(allocated.stdout)["workspace"] == str(tmp_path)
    ran = json.loads(cli("call", "run_on_mesh", "mesh=demo", "command=echo hi there", "-o", "json").stdout)
    assert (ran["state"], ran["output_tail"]) == ("succeeded", "ranks 0-1:\nhi there")
    status = cli("status").stdout.splitlines()
    assert status[0].split("\t")[:3] == [mesh, "ready", "2 x 1"]
    assert status[1].split("\t")[:3] == [ran["run"], "succeeded", "succeeded 0-1"]
    assert "workspace_mode: shared" in cli("status", mesh).stdout.splitlines()
    assert cli("logs", ran["run"]).stdout.splitlines()[:2] == ["ranks 0-1:", "hi there"]
    over = cli("stacks", ran["run"])
    assert over.returncode == 1
    assert over.stderr.startswith("run_ended: ")
    words = "It succeeded, and nothing is found to be wrong; whether it has learnt is not judged."
    diagnosed = f"{ran['run']} is succeeded: {words}\n"
    assert cli("diagnose", ran["run"]).stdout == cli("diagnose", "demo").stdout == diagnosed
    assert json.loads(cli("diagnose", "demo", "-o", "json").stdout)["state"] == "succeeded"
    released = cli("release", mesh)
    assert (released.returncode, released.stdout.splitlines()[:2]) == (
        0,
        [f"mesh: {mesh}", "state: released"],
    )
    assert cli("status").stdout == "no meshes\n"
    assert json.loads(cli("status", "-o", "json").stdout)["meshes"] == []


def test_a_command_is_run_followed_and_given_back(cli: Cli) -> None:
    done = cli("run", "--hosts", "2", "--", "sh", "-c", "echo from $RANK of $WORLD_SIZE")
    assert done.returncode == 0, done.stderr
    assert "from 0|1 of 2" in done.stdout
    assert "succeeded after" in done.stderr
    assert "from" not in done.stderr
    assert cli("status").stdout == "no meshes\n"


@pytest.mark.anyio
async def test_who_follows_a_run_is_told_once_that_it_hangs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(following, "_WAIT_S", 0.01)
    meshes = FakeMeshes()
    monkeypatch.setattr(meshes, "on_start", lambda run: None)
    mesh = await meshes.allocate(MeshSpec("demo", 2, 1), wait_s=1)
    started = await mesh.start_run(RunRequest(("python", "train.py")))
    held = mesh.held[started.run]
    waited: list[float] = []

    async def wait_run(run: str, **_: object) -> RunView:
        """Nothing moves, twice; then it ends."""
        waited.append(time.time())
        ranks = tuple(replace(rank, start="cold") for rank in started.ranks)
        held.view = replace(started, ranks=ranks, still_since=waited[0] - 30)
        if len(waited) == 3:
            end_run(held, "cancelled", Exit(signal=15, ended_by="cancelled"))
        return held.view

    monkeypatch.setattr(mesh, "wait_run", wait_run)
    assert (await following.follow(mesh, started.run)).state == "cancelled"  # type: ignore[arg-type]
    told = f"{started.run}: no rank has moved for 30 s: milkweed diagnose {started.run} tells why\n"
    assert capsys.readouterr().err == told


def test_a_command_is_run_on_hosts_that_have_the_directory_as_was_asked_for(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", "--hosts", "2", "--workspace-mode", "copy", "--", "sh", "-c", "pwd > here; pwd")
    assert done.returncode == 0, done.stderr
    assert "hosts/0|1/workspace" in done.stdout
    assert not (tmp_path / "here").exists()


CONTROLLER = """
import sys
from milkweed.runtime import attach
print(sys.argv[1:], len(attach()))
sys.exit(len(sys.argv) - 3)
"""


def test_a_controller_is_run_on_a_mesh_followed_and_the_mesh_kept(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "controller.py").write_text(CONTROLLER)
    (tmp_path / "elsewhere").mkdir()
    assert cli("call", "allocate_mesh", "name=demo", "hosts=2", "workspace=elsewhere").returncode == 0
    done = cli("controller", "demo", "controller.py", "--steps", "5")
    assert (done.returncode, done.stdout) == (0, "['--steps', '5'] 2\n"), done.stderr
    assert "succeeded after" in done.stderr
    failed = cli("controller", "-o", "json", "demo", "controller.py", "a", "b", "c")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["first_failure"]["exit"] == "exit 1"
    refused = cli("controller", "demo", "README.md")
    assert refused.returncode == 2
    assert "is no Python program" in refused.stderr
    assert cli("controller", "nope", "controller.py").stderr.startswith("mesh_not_found: ")
    assert cli("release", "demo").returncode == 0


def test_a_mesh_is_checked_and_what_is_not_there_fails_the_command(cli: Cli) -> None:
    assert cli("call", "allocate_mesh", "name=demo", "hosts=2").returncode == 0
    done = cli("check", "demo", "--hosts", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1] == "verdict: ok"
    assert lines[3].startswith("  - hosts=1, verdict=ok, ")
    refused = cli("check", "demo", "--hosts", "2")
    assert (refused.returncode, refused.stderr.partition(":")[0]) == (1, "host_not_found")
    assert cli("check", "nope").stderr.startswith("mesh_not_found: ")
    assert cli("release", "demo").returncode == 0


def test_a_program_is_shown_on_amd_and_written_where_that_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "port").mkdir()
    (tmp_path / "port" / "a.cu").write_text("#include <cuda_runtime.h>\nint lane = threadIdx.x & 31;\n")
    shown = cli("port", str(tmp_path / "port")).stdout
    assert "1 file of 1 source translated, 1 place of 1 kind left for you" in shown
    assert not (tmp_path / "port" / "a.hip").exists()
    assert "1 file written" in cli("port", "--write", str(tmp_path / "port")).stdout
    assert "hip_runtime.h" in (tmp_path / "port" / "a.hip").read_text()


def test_a_run_that_fails_fails_the_command(cli: Cli) -> None:
    done = cli("run", "-o", "json", "--", "python", "-c", "raise ValueError('no')")
    assert done.returncode == 1
    assert json.loads(done.stdout)["first_failure"]["exception"] == "ValueError: no"
    assert cli("status").stdout == "no meshes\n"


def test_an_interrupt_ends_the_run_and_gives_the_mesh_back(
    cli: Cli, places: dict[str, str], tmp_path: Path
) -> None:
    command = [*MILKWEED, "run", "--", "sh", "-c", "echo ready; exec sleep 300"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **places}, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert cli("status").stdout == "no meshes\n"


def test_a_mesh_that_another_released_is_no_error_of_the_run(
    cli: Cli, places: dict[str, str], tmp_path: Path
) -> None:
    command = [*MILKWEED, "run", "--", "sh", "-c", "echo ready; exec sleep 300"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **places},
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (mesh,) = json.loads(cli("status", "-o", "json").stdout)["meshes"]
        assert cli("release", mesh["mesh"]).returncode == 0
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cancelled" in errors
    assert "mesh_released" not in errors


def test_the_usage_of_run_names_one_command_and_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert "-- COMMAND [ARG ...]\n" in capsys.readouterr().out


def test_logs_are_followed_to_the_end(cli: Cli, places: dict[str, str], tmp_path: Path) -> None:
    cli("call", "allocate_mesh", "name=demo")
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f"echo one; cat {go}; echo three; exit 3"
    started = cli("call", "run_on_mesh", "mesh=demo", f"script={script}", "wait_s=0", "-o", "json")
    command = [*MILKWEED, "logs", "--follow", json.loads(started.stdout)["run"]]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **places}, cwd=tmp_path
    ) as followed:
        try:
            assert followed.stdout is not None
            assert followed.stdout.readline() == "one\n"
            go.write_text("two\n")
            rest, _ = followed.communicate(timeout=60)
        finally:
            followed.kill()
    assert rest.split() == ["two", "three"]
    assert followed.returncode == 1


def test_errors_have_exit_codes_and_no_traceback(cli: Cli) -> None:
    unknown = cli("logs", "run-zzz")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr.startswith("run_not_found: ")
    wrong = cli("call", "allocate_mesh", "name=demo", "hosts=two")
    assert wrong.returncode == 2
    assert "hosts must be an integer between 1 and 1024" in wrong.stderr
    for done in (unknown, wrong):
        assert "Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_the_doctor_examines_this_machine(cli: Cli) -> None:
    done = cli("doctor", "-o", "json")
    checks = json.loads(done.stdout)
    assert len(checks) == len(CHECKS)
    assert all(
        check["state"] in ("ok", "warning", "missing", "absent") and check["detail"] for check in checks
    )
    assert all(check["mend"] for check in checks if check["state"] in ("warning", "missing"))
    assert done.returncode == (1 if any(check["state"] == "missing" for check in checks) else 0)


def test_the_doctor_tells_of_a_runtime_directory_that_is_too_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MILKWEED_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("MILKWEED_RUNTIME_DIR", str(tmp_path / ("r" * 120)))
    check = check_directories()
    assert (check.state, check.mend) == ("missing", "Set MILKWEED_RUNTIME_DIR to a short directory.")


def test_the_doctor_tells_of_an_index_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state, index = tmp_path / "a state", tmp_path / "a state" / "index.sqlite"
    monkeypatch.setenv("MILKWEED_STATE_DIR", str(state))
    monkeypatch.setenv("MILKWEED_RUNTIME_DIR", str(tmp_path / "r"))
    assert (check_index().state, index.exists()) == ("ok", False)  # nothing is made by the look
    index.write_bytes(b"of another program" * 100)
    check = check_index()
    assert (check.state, check.mend) == ("missing", f"mv '{index}' '{index}.old'")
    subprocess.run(check.mend, shell=True, check=True)
    assert check_index().state == "ok"


def test_the_doctor_tells_of_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILKWEED_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setattr("milkweed.server.cli.checks._FREE_BYTES", 1 << 62)
    assert check_disk().state == "warning"


def test_a_reader_that_leaves_is_no_error(cli: Cli, places: dict[str, str], tmp_path: Path) -> None:
    command = " ".join([*MILKWEED, "call", "list_schedulers", "|", "true"])
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **places},
    )
    assert done.stderr == ""
