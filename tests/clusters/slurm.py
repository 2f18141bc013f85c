"""A real Slurm on this machine: a controller and some node daemons, in a directory and on ports of its own.

All nodes are this machine, so the embedded engine reaches them. Each has four fake GPUs. It knows no cgroups and
no accounting.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Slurm", "open_slurm"]

NODES = 4
GPUS = 4
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
_UP_S = 20.0
_SYSTEM = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))

_CONF = """\
ClusterName=patch
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CryptoType=crypto/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool.%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerParameters=sched_min_interval=100000,bf_interval=1,sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=3
SlurmdTimeout=6
InactiveLimit=0
MinJobAge=120
GresTypes=gpu
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 State=UP
PartitionName=short Nodes=ALL MaxTime=10 PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=9 PreemptMode=OFF State=UP
"""


@dataclass
class Slurm:
    """`env` is what a client of it needs; node names are n0, n1, ..."""

    root: Path
    nodes: int
    daemons: dict[str, int] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.root / "slurm.conf"), "PATH": _SYSTEM}

    def ask(self, *command: str) -> str:
        """What a command prints; it fails the test when it fails."""
        done = subprocess.run(
            command, env={**os.environ, **self.env}, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
        return done.stdout

    def idle(self) -> int:
        counts = self.ask("sinfo", "-h", "-p", "gpu", "-t", "idle", "-o", "%D").split()
        return sum(map(int, counts))

    def start_node(self, number: int) -> None:
        """Starts a node's daemon."""
        _start(["slurmd", "-N", f"n{number}", "-f", self.env["SLURM_CONF"]])
        self.daemons[f"n{number}"] = _read_pid(self.root / f"slurmd.n{number}.pid")

    def kill_node(self, number: int) -> None:
        """Kills a node's daemon, and all that it runs for jobs, as a power cut would."""
        found = [pid for pid, name in _steps() if name.endswith(f".n{number}") or f"-N n{number} " in name]
        for pid in (self.daemons.pop(f"n{number}"), *found, *(p for one in found for p in _below(one))):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
