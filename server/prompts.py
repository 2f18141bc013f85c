"""Prompts: the ways of working that a client can offer its user by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mcp_types as types

from ..runtime.errors import InvalidArgument, NotFound
from .explaining import in_words

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from .opener import Opener

__all__ = ["PROMPTS", "Prompt", "PromptArgument", "Prompts"]

_LONGEST_VALUE = 2000


@dataclass(frozen=True, slots=True)
class PromptArgument:
    name: str
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """`write` makes the text of checked arguments; those that were not given are empty."""

    name: str
    title: str
    description: str
    arguments: tuple[PromptArgument, ...]
    write: Callable[[Mapping[str, str]], str]

    def describe(self) -> types.Prompt:
        return types.Prompt(
            name=self.name,
            title=self.title,
            description=self.description,
            arguments=[
                types.PromptArgument(name=one.name, description=one.description, required=one.required)
                for one in self.arguments
            ],
        )

    def get(self, given: Mapping[str, str]) -> types.GetPromptResult:
        """
        Raises:
            InvalidArgument: one is missing, unknown or too long.
        """
        text = self.write(self._check(given)).strip()
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(description=self.description, messages=[message])

    def _check(self, given: Mapping[str, str]) -> dict[str, str]:
        known = [one.name for one in self.arguments]
        unknown = [name for name in given if name not in known]
        missing = [one.name for one in self.arguments if one.required and not given.get(one.name, "").strip()]
        long = [name for name, value in given.items() if len(value) > _LONGEST_VALUE]
        if unknown or missing or long:
            what = (
                f"has no argument {unknown[0][:60]!r}"
                if unknown
                else f"needs {missing[0]}"
                if missing
                else f"takes at most {_LONGEST_VALUE} characters of {long[0]}"
            )
            raise InvalidArgument(
                "invalid_argument", f"prompt {self.name} {what}", f"Its arguments: {', '.join(known)}."
            )
        return {name: given.get(name, "").strip() for name in known}


class Prompts:
    """`prompts/list` and `prompts/get`."""

    async def list(
        self, _: ServerRequestContext[Opener], __: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[prompt.describe() for prompt in PROMPTS])

    async def get(
        self, context: ServerRequestContext[Opener], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        with in_words(context.method):
            return _find(params.name).get(params.arguments or {})


def _find(name: str) -> Prompt:
    for prompt in PROMPTS:
        if prompt.name == name:
            return prompt
    names = ", ".join(prompt.name for prompt in PROMPTS)
    raise NotFound("prompt_not_found", f"no prompt '{name[:60]}'", f"Prompts: {names}.")


def _deploy_training(given: Mapping[str, str]) -> str:
    goal, workspace = given["goal"], given["workspace"]
    return _DEPLOY_TRAINING.format(
        command=given["command"],
        quoted=_quoted(given["command"]),
        hosts=given["hosts"] or "2",
        procs=given["procs_per_host"] or "2",
        goal=goal or "the run succeeded",
        workspace=f", workspace={_quoted(workspace)}" if workspace else "",
    )


def _about_run(text: str) -> Callable[[Mapping[str, str]], str]:
    return lambda given: text.format(run=given["run"], quoted=_quoted(given["run"]))


def _port_to_amd(given: Mapping[str, str]) -> str:
    return _PORT_TO_AMD.format(path=given["path"], quoted=_quoted(given["path"]))


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


_DEPLOY_TRAINING = """\
Train with `{command}` on {hosts} hosts with {procs} processes each, through Milkweed's tools.
It is done when {goal}.

1. list_schedulers, then allocate_mesh(name=..., hosts={hosts}, procs_per_host={procs}{workspace}).
2. check_mesh once: what differs between hosts is cheaper to know before than after.
3. First a short run of a few steps on one host (ranks="hosts=0"), then the whole:
   run_on_mesh(mesh, command={quoted}). Follow it by wait_for_run and read_run_output.
4. When it fails, hangs or is slow: diagnose_run, mend the cause in the local files (hosts see every edit),
   run again. Change one thing at a time.
5. Keep what should stay: fetch_files for checkpoints and logs. Then release_mesh.
6. Tell the command that worked, the last loss, what was mended and why, and where the files are.
"""

_DEBUG_HANG = """\
Find out why {run} makes no progress, and mend it, through Milkweed's tools.

1. diagnose_run(run={quoted}): the cause, the ranks and the evidence. If it is told as moving or slow, it does
   not hang: say so, and look at profile_run instead.
2. stack_dump(target={quoted}): the ranks that are elsewhere come first. Read the source there. locals=true
   shows variables, native=true what C code waits for.
3. Say in one sentence which rank waits for what, and which rank will never come, with file and line.
4. cancel_run, mend the local file, run the same command again, and wait_for_run(until="hang") until it has
   passed the place. Do not raise a time-out to hide a wait that never ends.
"""

_DEBUG_NAN = """\
Find out where NaN or Inf in {run} comes from, and mend it, through Milkweed's tools.

1. diagnose_run(run={quoted}): the first step and the ranks. On one rank alone look at its data; on all at
   once at the model, the learning rate or a kernel.
2. read_run_output(run={quoted}, grep="(?i)nan|inf|loss", cursor="start"): how the loss went before.
3. Find the first tensor that is not finite: torch.autograd.set_detect_anomaly(True), or
   torch.isfinite(x).all() after each stage, printed with the rank and the step. For a compiled kernel print
   its input and output, and compare with the same in plain PyTorch.
4. Mend the cause (a division by 0, a log of 0, an index beyond the end, a rate too high), not the symptom: no
   nan_to_num. Remove the prints, run again, and show the loss falling beyond that step.
"""

_PORT_TO_AMD = """\
Make the CUDA program in {path} run on AMD GPUs (ROCm), through Milkweed's tools.

1. port_to_rocm(path={quoted}): what translation would change, and what it leaves. Nothing is written yet.
   (Toolset amd: milkweed serve --toolsets default,amd. On the command line: milkweed port PATH.)
2. Go through what it leaves, each by hand: inline PTX, a warp size of 32 that is assumed (AMD's CDNA has 64),
   calls without a HIP twin, packages that are for CUDA only.
3. port_to_rocm(path={quoted}, dry_run=false), then build on the hosts: run_on_mesh with launcher "per_host".
   Mend what does not compile.
4. Compare results with those on NVIDIA or on CPU, on fixed inputs, before comparing speed.
5. Set none of HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES: Milkweed sets one.
"""

_RUN = (PromptArgument("run", "run id", required=True),)

PROMPTS = (
    Prompt(
        "deploy_training",
        "Train on a cluster",
        "From a command to a finished distributed training run.",
        (
            PromptArgument("command", "what to run on every rank, such as: python train.py", required=True),
            PromptArgument("goal", "when it is done, such as: the validation loss is below 3"),
            PromptArgument("hosts", "how many; default 2"),
            PromptArgument("procs_per_host", "processes a host; default 2"),
            PromptArgument("workspace", "directory with the code"),
        ),
        _deploy_training,
    ),
    Prompt(
        "debug_hang",
        "Find a hang",
        "Why a run makes no progress, and the mend.",
        _RUN,
        _about_run(_DEBUG_HANG),
    ),
    Prompt(
        "debug_nan",
        "Find a NaN",
        "Where NaN or Inf in a loss comes from, and the mend.",
        _RUN,
        _about_run(_DEBUG_NAN),
    ),
    Prompt(
        "port_to_amd",
        "Port to AMD",
        "A CUDA program to ROCm, with what automatic translation leaves.",
        (PromptArgument("path", "folder with the program", required=True),),
        _port_to_amd,
    ),
)
