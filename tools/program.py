"""The toolset `program`: single-controller Python programs on a mesh."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ..runtime.errors import InvalidArgument
from ..runtime.records import RunRequest
from .arguments import MeshId, Why
from .commands import check_env, check_python_script, python_command, split_command
from .registry import Call, tool
from .results import RunResult
from .run import RUN_SECONDS_MAX, WAIT_MAX_S, absolute, start_and_wait

__all__ = ["run_controller"]


class ProgramOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    warm: bool = Field(
        default=True, description="fork the program from a process that has imported, if one is ready"
    )


@tool("program", open_world=True)
async def run_controller(
    call: Call,
    mesh: MeshId,
    command: Annotated[
        str | list[str] | None,
        Field(description="a Python program and its arguments, such as 'controller.py --steps 5'"),
    ] = None,
    script: Annotated[str | None, Field(description="instead of command: the program's text")] = None,
    env: dict[str, str] | None = None,
    cwd: Annotated[str | None, Field(description="default: the workspace")] = None,
    timeout_s: Annotated[
        float | None,
        Field(gt=0, le=RUN_SECONDS_MAX, description="end the program after it"),
        Why("7 days at most"),
    ] = None,
    options: ProgramOptions | None = None,
    wait_s: Annotated[
        float,
        Field(ge=0, le=WAIT_MAX_S, description="how long to wait for the end"),
        Why("no call takes longer"),
    ] = 20.0,
) -> RunResult:
    """Runs one Python program that controls the whole mesh, and waits up to wait_s for its end. In it
    `attach()` gives the hosts, on which it spawns procs and actors:

        from milkweed.runtime import Actor, attach, current_rank, endpoint
        class Trainer(Actor):
            @endpoint
            def step(self, x): return x * current_rank().rank
        procs = attach().spawn_procs(per_host={"gpus": 2}).get()
        trainers = procs.spawn("trainers", Trainer).get()  # more arguments: of __init__
        print(trainers.step.call(2).get().values())  # of each rank; trainers.slice(gpus=1): of some

    In async code await what has .get() here. An endpoint that another one waits for is better async.

    It is a run of one rank: wait_for_run, read_run_output, stack_dump and cancel_run work on it. What it
    spawned ends with it. A failure that it does not handle makes the mesh degraded until then."""
    if (command is None) == (script is None):
        what = "needs a command or a script" if command is None else "takes a command or a script, not both"
        raise InvalidArgument("invalid_argument", f"run_controller {what}", "Nothing was started.")
    found = await call.meshes.get(mesh)
    request = RunRequest(
        argv=() if command is None else python_command(split_command(command)),
        launcher="single",
        script=None if script is None else check_python_script(script),
        env=check_env(env or {}),
        cwd=await absolute(found, cwd),
        timeout_s=timeout_s,
        attach=True,
        warm=(options or ProgramOptions()).warm,
    )
    return await start_and_wait(call, found, request, wait_s)
