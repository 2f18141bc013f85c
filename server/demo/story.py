"""The story: a training hangs, the agent asks why, mends the script, runs it again.

Every step says what it expects of the answer, and the demonstration fails where it gets something else.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio

from ...runtime.errors import MilkweedError
from ...runtime.mounts import in_the_way, probe
from ...runtime.schedulers.namespaces import check_possible
from ..screen import Screen
from . import leftovers
from .caller import Answer, Caller
from .reading import diff, final_loss, step_losses

__all__ = ["DemoFailed", "play"]

SCRIPT = "train.py"
COMMAND = f"python {SCRIPT}"
BROKEN = "steps = (len(batches) - rank + world_size - 1) // world_size"
MENDED = "steps = len(batches) // world_size"
LAST_STEP = 36

_WAIT_S = 40
_WAITS = 3
_SILENCE_S = 2
_LOOKS = 10
_CLEAN_UP_S = 20.0
_SHORT = 60


class DemoFailed(Exception):
    """A step did not give what it should; the text says which and what it gave."""


def _expect(holds: bool, what: str, answer: Answer | None = None) -> None:
    if not holds:
        raise DemoFailed(f"expected {what}" + (f", got: {answer.text[:2000]}" if answer is not None else ""))


async def play(screen: Screen, *, keep: bool = False) -> None:
    """Plays the whole story in a directory of its own, which is removed at the end.

    Args:
        keep: leave the directory (workspace, logs, output) where it is, and say where.

    Raises:
        DemoFailed: a step did not give what it should. The directory is kept then.
    """
    has_torch = importlib.util.find_spec("torch") is not None
    _expect(has_torch, "torch, which the training script needs; mend: pip install 'milkweed[torch]'")
    root = Path(tempfile.mkdtemp(prefix="milkweed-demo-", dir=_folder()))
    shutil.copytree(Path(__file__).parent / "workspace", root / "workspace")
    try:
        await _play_in(root, screen)
    except BaseException:
        screen.note(f"\nLogs and output are in {root}")
        raise
    finally:
        with anyio.CancelScope(shield=True):
            stubborn = await leftovers.end(root, _CLEAN_UP_S)
        if stubborn:
            screen.note(f"still alive: processes {sorted(stubborn)}")
    if keep:
        screen.note(f"\nKept: {root}")
    else:
        shutil.rmtree(root, ignore_errors=True)


def _folder() -> str:
    """Where the directory goes: sockets in it need a short path."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _SHORT else "/tmp"


async def _play_in(root: Path, screen: Screen) -> None:
    from mcp import Client, MCPError, StdioServerParameters

    command, *args = _serve_command()
    server = StdioServerParameters(command=command, args=args, env=_environment(root), cwd=root / "workspace")
    caller: Caller | None = None
    try:
        async with Client(server) as client:
            caller = Caller(client, screen)
            await _tell(caller, root / "workspace")
    except* (MCPError, OSError) as errors:
        raise DemoFailed(f"expected answers of milkweed serve, got: {_first(errors)}") from None
    except* DemoFailed as errors:
        raise DemoFailed(str(_first(errors))) from None
    assert caller is not None
    left = await leftovers.wait_until_none(root, _CLEAN_UP_S)
    _expect(not left, f"no process left behind, found {sorted(left)}")
    screen.note("\nNo process of it is left.")
    screen.table(caller.rows())


def _serve_command() -> tuple[str, ...]:
    """`milkweed serve` of this very installation."""
    beside = Path(sys.executable).with_name("milkweed")
    return (
        (str(beside), "serve") if beside.exists() else (sys.executable, "-m", "milkweed.server.cli", "serve")
    )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _environment(root: Path) -> dict[str, str]:
    """Ours without the settings of other meshes, with state and sockets below `root`."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MILKWEED_")}
    return {**ours, "MILKWEED_STATE_DIR": str(root / "state"), "MILKWEED_RUNTIME_DIR": str(root / "run")}


async def _tell(call: Caller, workspace: Path) -> None:
    call.screen.heading("A client starts `milkweed serve` and asks for its tools")
    tools = await call.list_tools()
    call.screen.note(f"{len(tools)} tools: {', '.join(tools)}")
    mesh = await _allocate(call, workspace)
    run = await _run_into_silence(call, mesh)
    await _find_the_cause(call, run)
    await _cancel(call, run)
    _mend(call.screen, workspace / SCRIPT)
    await _run_again(call, mesh)
    call.screen.heading("Give the hosts back")
    answer = await _ask(call, "release_mesh", mesh=mesh)
    _expect(answer.fields.get("state") == "released", "a released mesh", answer)


async def _ask(call: Caller, tool: str, /, **arguments: Any) -> Answer:
    answer = await call(tool, **arguments)
    _expect(not answer.is_error, f"no error from {tool}", answer)
    return answer


async def _allocate(call: Caller, workspace: Path) -> str:
    words, how = _hosts_apart()
    call.screen.heading(f"Two hosts of this machine, {words}, two ranks on each")
    answer = await _ask(
        call, "allocate_mesh", name="demo", hosts=2, procs_per_host=2, workspace=str(workspace), **how
    )
    _expect(answer.fields.get("state") == "ready", "a mesh that is ready", answer)
    _expect(answer.fields.get("world_size") == 4, "a mesh of 4 ranks", answer)
    return str(answer.fields["mesh"])


def _hosts_apart() -> tuple[str, dict[str, Any]]:
    """Hosts as far apart as this machine can make them, in words and as arguments."""
    try:
        check_possible()
    except MilkweedError:
        pass
    else:
        return "with networks and mounts of their own", {"options": {"isolation": "namespaces"}}
    if not in_the_way(probe()):
        return "each with a mount of the workspace", {"workspace_mode": "mount"}
    return "which share the workspace", {}


async def _run_into_silence(call: Caller, mesh: str) -> str:
    call.screen.heading("Run the training")
    answer = await _ask(call, "run_on_mesh", mesh=mesh, command=COMMAND, wait_s=1)
    _expect(answer.fields.get("state") == "running", "a run that goes on", answer)
    run = str(answer.fields["run"])
    pattern = f"step +{LAST_STEP}"
    answer = await _ask(call, "wait_for_run", run=run, pattern=pattern, timeout_s=_WAIT_S)
    _expect(answer.fields.get("matched") is True, f"output that matches {pattern!r}", answer)
    answer = await _ask(call, "read_run_output", run=run)
    losses = list(step_losses(answer.text).values())
    _expect(len(losses) > 1 and losses[-1] < losses[0], "a loss that falls", answer)
    call.screen.heading("Loss falls. Does it go on?")
    answer = await _ask(call, "wait_for_run", run=run, pattern="step +42|finished", timeout_s=_SILENCE_S)
    _expect(answer.fields.get("matched") is False, "no further step", answer)
    _expect(answer.fields.get("state") == "running", "a run that has not ended", answer)
    return run


async def _find_the_cause(call: Caller, run: str) -> None:
    call.screen.heading("No. Why? (until nothing moves any more)")
    for _ in range(_LOOKS):
        answer = await _ask(call, "diagnose_run", run=run)
        if answer.fields.get("cause") == "left_early":
            break
    _expect(answer.fields.get("cause") == "left_early", "a rank that left the loop early", answer)
    _expect(answer.fields.get("ranks") == "3", "rank 3 named", answer)
    evidence = answer.fields.get("evidence", [])
    for who in ("rank 3", "ranks 0-2"):
        there = any(line.startswith(f"{who} at {SCRIPT}:") for line in evidence)
        _expect(there, f"the place of {who}", answer)


async def _cancel(call: Caller, run: str) -> None:
    call.screen.heading("Rank 3 has one batch less than the others")
    answer = await _ask(call, "cancel_run", run=run)
    _expect(answer.fields.get("state") == "cancelled", "a cancelled run", answer)


def _mend(screen: Screen, script: Path) -> None:
    before = script.read_text()
    _expect(before.count(BROKEN) == 1, f"one line {BROKEN!r} in {script}")
    after = before.replace(BROKEN, MENDED)
    script.write_text(after)
    screen.heading("Edit the script where it is: the hosts see the same directory")
    screen.diff(diff(before, after, SCRIPT))


async def _run_again(call: Caller, mesh: str) -> None:
    call.screen.heading("Run it again")
    answer = await _ask(call, "run_on_mesh", mesh=mesh, command=COMMAND, wait_s=_WAIT_S)
    run = str(answer.fields["run"])
    for _ in range(_WAITS):
        if answer.fields.get("state") != "running":
            break
        answer = await _ask(call, "wait_for_run", run=run, timeout_s=_WAIT_S)
    _expect(answer.fields.get("state") == "succeeded", "a run that succeeded", answer)
    _expect(answer.fields.get("ranks") == {"succeeded": "0-3"}, "success of every rank", answer)
    answer = await _ask(call, "read_run_output", run=run, grep="loss")
    losses, final = list(step_losses(answer.text).values()), final_loss(answer.text)
    _expect(final is not None and bool(losses) and final < losses[0], "a last loss below the first", answer)
    call.screen.note(f"\nLoss fell from {losses[0]:.3f} to {final:.3f}.")
