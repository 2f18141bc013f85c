"""The batch script of a mesh, and the options that it is made of. Pure.

One job a mesh, one task a node: the task becomes the host's command (`host_task.py`). A node that fails costs
its host and not the job (`--no-kill`), unless it is the first, which runs the script.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import InvalidArgument, Unavailable
from ...names import quoted
from ...paths import MeshPaths
from ...records import MeshSpec

__all__ = ["OPTIONS", "JobFiles", "check_options", "check_paths", "render", "time_limit_s"]

# What ends after the lease: the agents, in their own time, before Slurm ends the job.
_MARGIN_S = 120.0
_WARN_S = 60
# What a line of #SBATCH may hold: no blanks, quotes, or what a shell or sbatch would read.
_VALUE = re.compile(r"[A-Za-z0-9_.,:+@%/=&|()\[\]*-]+")
_PATH = re.compile(r"/[^\0\n'\"\\$`]*")

_PLAIN_PATH = re.compile(r"[A-Za-z0-9_.,:+@=/-]+")

OPTIONS: Mapping[str, str] = {
    "partition": "where to run; the cluster's default",
    "account": "whom to charge",
    "qos": "quality of service",
    "constraint": "features of nodes: h100&ib",
    "reservation": "reserved nodes",
    "nodelist": "these nodes: n[0-3]",
    "exclude": "not these nodes",
    "gpus_per_node": "GPUs of each host: 8, or h100:8",
    "cpus_per_node": "CPUs of each host; one a rank",
    "mem": "memory of each host: 64G; 0: all",
    "exclusive": "yes: whole nodes",
    "requeue": "yes: a job that is preempted or loses its first node waits for hosts again",
    "time_limit_minutes": "of the job, where it is to be longer than the lease",
    "warn_s": "how long before its end the job is to be warned; 60",
    "modules": "modules to load: cuda/12.4,nccl",
    "prologue": "a shell file that is sourced on the first node before hosts start",
    "container_image": "what srun --container-image starts the hosts in (pyxis)",
    "container_mounts": "what of the node it sees, beside Milkweed's own directories",
}
_YES_OR_NO = ("exclusive", "requeue")
_NUMBERS = ("cpus_per_node", "time_limit_minutes", "warn_s")
_DIRECTIVES = ("partition", "account", "qos", "constraint", "reservation", "nodelist", "exclude", "mem")


@dataclass(frozen=True, slots=True)
class JobFiles:
    """What a job and its keeper tell each other by: files below the mesh's directory."""

    root: Path

    @classmethod
    def of(cls, paths: MeshPaths) -> JobFiles:
        return cls(paths.root / "slurm")

    @property
    def script(self) -> Path:
        return self.root / "job.sh"

    @property
    def started(self) -> Path:
        """Made when the script begins; holds how often the job was restarted."""
        return self.root / "started"

    @property
    def warned(self) -> Path:
        """Made when Slurm warns the job that it will be ended."""
        return self.root / "warned"

    def log(self, job: str) -> Path:
        return self.root / f"job-{job}.log"


def check_options(spec: MeshSpec) -> None:
    """
    Raises:
        InvalidArgument: an option is unknown, or has a value that it cannot have.
    """
    for name, value in spec.options.items():
        if name not in OPTIONS:
            raise InvalidArgument(
                "invalid_argument",
                f"scheduler slurm has no option '{quoted(name)}'; options: {', '.join(OPTIONS)}",
                "Leave it out.",
            )
        if wrong := _what_is_wrong(name, value):
            raise InvalidArgument(
                "invalid_argument",
                f"{name} must be {wrong}, not '{quoted(value)}'",
                "Call it with such a one.",
            )


def check_paths(paths: MeshPaths) -> None:
    """
    Raises:
        Unavailable: directory_unusable, what Slurm would read in a path otherwise.
    """
    for path in (paths.root, paths.sockets):
        if not _PLAIN_PATH.fullmatch(str(path)):
            raise Unavailable(
                "directory_unusable",
                f"{path} has letters that a batch script cannot have in a path",
                "Set MILKWEED_STATE_DIR and MILKWEED_RUNTIME_DIR to directories without blanks and the like.",
            )


def _what_is_wrong(name: str, value: str) -> str:
    if name in _YES_OR_NO:
        return "" if value in ("yes", "no") else "yes or no"
    if name in _NUMBERS:
        return "" if re.fullmatch(r"[1-9][0-9]{0,6}", value) else "a whole number"
    if name == "gpus_per_node":
        return (
            "" if re.fullmatch(r"([A-Za-z0-9_.-]+:)?[1-9][0-9]{0,2}", value) else "a number, or type:number"
        )
    if name == "prologue":
        return "" if _PATH.fullmatch(value) else "an absolute path without quotes, $ and the like"
    return "" if _VALUE.fullmatch(value) else "a word without blanks, quotes and what a shell reads"


def time_limit_s(spec: MeshSpec) -> float:
    """The lease and what it takes to end; longer where that was asked for."""
    asked = float(spec.options.get("time_limit_minutes", "0")) * 60
    return max(asked, spec.lease_minutes * 60 + _MARGIN_S)


def render(mesh: str, spec: MeshSpec, paths: MeshPaths, task: tuple[str, ...]) -> str:
    """The script; `task` is the command of each node."""
    files = JobFiles.of(paths)
    options = spec.options
    cpus = options.get("cpus_per_node", str(spec.procs_per_host))
    directives = [
        f"--job-name={mesh}",
        f"--nodes={spec.hosts}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cpus}",
        f"--time={math.ceil(time_limit_s(spec) / 60)}",
        *(f"--{name}={options[name]}" for name in _DIRECTIVES if name in options),
        *([f"--gpus-per-node={options['gpus_per_node']}"] if "gpus_per_node" in options else []),
        *(["--exclusive"] if options.get("exclusive") == "yes" else []),
        "--no-kill",
        "--requeue" if options.get("requeue") == "yes" else "--no-requeue",
        f"--signal=B:USR1@{options.get('warn_s', _WARN_S)}",
        "--open-mode=append",
        f"--output={files.root}/job-%j.log",
        f"--chdir={paths.root}",
    ]
    modules = options.get("modules", "").split(",")
    lines = [
        "#!/bin/bash",
        f"# Hosts of {mesh}. Ends when they have ended.",
        *(f"#SBATCH {one}" for one in directives),
        "",
        f'echo "${{SLURM_RESTART_COUNT:-0}}" > {_in_shell(files.started)}',
        f"rm -f {_in_shell(files.warned)}",
        *(f"module load {shlex.quote(one)} || exit 1" for one in modules if one),
        *([f"source {shlex.quote(options['prologue'])} || exit 1"] if "prologue" in options else []),
        f"trap 'date +%s > {_in_shell(files.warned)}' USR1",
        f"{shlex.join(_step(spec, paths, cpus))} {shlex.join(task)} &",
        'while kill -0 "$!" 2>/dev/null; do wait "$!"; status=$?; done',
        'exit "${status:-1}"',
        "",
    ]
    return "\n".join(lines)


def _in_shell(path: Path) -> str:
    return f'"{path}"'


def _step(spec: MeshSpec, paths: MeshPaths, cpus: str) -> list[str]:
    """One task a node, that is not bound to a part of what the job has there, and ends alone."""
    words = [
        "srun",
        f"--ntasks={spec.hosts}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cpus}",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--cpu-bind=none",
        "--distribution=block",
    ]
    if image := spec.options.get("container_image"):
        own = [f"{one}:{one}" for one in (paths.root.parent.parent, paths.sockets.parent)]
        mounts = ",".join([*own, *filter(None, [spec.options.get("container_mounts")])])
        words += [f"--container-image={image}", f"--container-mounts={mounts}"]
    return words
