"""A real Slurm on this machine: a controller and some node daemons, in a directory and on ports of its own.

All nodes are this machine, so the embedded engine reaches them; each has four fake GPUs. There are no cgroups
and no accounting. It takes a second or two to come up.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from milkweed.runtime.agent import ptree

__all__ = ["GPUS", "NODES", "Slurm", "open_slurm"]

NODES = 4
GPUS = 4
CPUS = 8
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
_UP_S = 30.0

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
SchedulerParameters=sched_min_interval=100000,bf_interval=1,sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=3
SlurmdTimeout=6
InactiveLimit=0
MinJobAge=120
OverTimeLimit=0
GresTypes=gpu
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 State=UP
PartitionName=short Nodes=ALL MaxTime=10 PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=9 PreemptMode=OFF State=UP
"""
_NODE = (
    "NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Boards=1"
    " SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory=16000 State=UNKNOWN"
    " Gres=gpu:h100:{gpus}"
)


class Slurm:
    """Nodes are n0, n1, ...; `env` is what a client needs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {"SLURM_CONF": str(root / "slurm.conf")}

    def ask(self, *command: str) -> str:
        """What a command prints; a test fails when it fails."""
        done = subprocess.run(
            command, env={**os.environ, **self.env}, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
        return done.stdout.strip()

    def try_to(self, *command: str) -> None:
        """A command that may come too late."""
        env = {**os.environ, **self.env}
        subprocess.run(command, env=env, capture_output=True, timeout=30, check=False)

    def submit(self, *options: str, command: str = "sleep 600") -> str:
        """A job of somebody else."""
        words = ("sbatch", "--parsable", "--output=/dev/null", "--no-requeue", *options)
        return self.ask(*words, f"--wrap={command}")

    def idle(self) -> int:
        counts = self.ask("sinfo", "-h", "-p", "gpu", "-t", "idle", "-o", "%D").split()
        return sum(map(int, counts))

    def job_of(self, mesh: str) -> str:
        return self.ask("squeue", "-h", "-n", mesh, "-o", "%i")

    def start_node(self, number: int) -> None:
        (self.root / f"spool.n{number}").mkdir(exist_ok=True)
        subprocess.run(["slurmd", "-N", f"n{number}", "-f", self.env["SLURM_CONF"]], check=True)

    def kill_node(self, number: int) -> None:
        """Kills a node's daemon and all that it runs for jobs, as a power cut would."""
        ours = {
            pid for pid in ptree.snapshot() if ptree.read_environ(pid).get("SLURMD_NODENAME") == f"n{number}"
        }
        parents = {process.parent for pid, process in ptree.snapshot().items() if pid in ours} - ours
        steps = {pid for pid in parents if _command_of(pid).startswith("slurmstepd")}
        # The daemons first: they would tell of the others' ends.
        for pid in (_read_pid(self.root / f"slurmd.n{number}.pid"), *steps, *ours):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def mend(self) -> None:
        """Ends all jobs, and brings back all nodes."""
        self.ask("scancel", "-u", str(os.getuid()))
        for number in range(NODES):
            if not _is_alive(self.root / f"slurmd.n{number}.pid"):
                # Else its jobs wait for it to say that it has ended them.
                self.ask("scontrol", "update", f"NodeName=n{number}", "State=DOWN", "Reason=killed")
                self.start_node(number)
        _until(lambda: not self.ask("squeue", "-h"), "jobs have ended")
        states = self.ask("sinfo", "-h", "-N", "-p", "gpu", "-t", "down,drain", "-o", "%N").split()
        for name in states:
            with suppress(AssertionError):  # it came back by itself
                self.ask("scontrol", "update", f"NodeName={name}", "State=RESUME")
        _until(lambda: self.idle() == NODES, "nodes are idle")


@contextmanager
def open_slurm() -> Iterator[Slurm]:
    """Brings it up, and takes it down with all that it started."""
    os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    assert not missing, f"no {', '.join(missing)} here: `make test-clusters` installs Slurm"
    root = Path(tempfile.mkdtemp(prefix="mw-slurm-", dir="/tmp"))
    root.chmod(0o755)
    slurm = Slurm(root)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        _write_files(root)
        _start(["munged", "--force", *_munge_options(root / "munge")], root / "munge" / "pid", stack)
        _start(["slurmctld", "-f", slurm.env["SLURM_CONF"]], root / "slurmctld.pid", stack)
        for number in range(NODES):
            stack.callback(_end, root / f"slurmd.n{number}.pid")
            slurm.start_node(number)
        _until(lambda: slurm.idle() == NODES, "nodes are idle")
        yield slurm


def _write_files(root: Path) -> None:
    for name in ("state", "dev", "munge"):
        (root / name).mkdir()
    (root / "munge" / "key").write_bytes(secrets.token_bytes(128))
    (root / "munge" / "key").chmod(0o600)
    for number in range(GPUS):
        subprocess.run(["mknod", str(root / "dev" / f"gpu{number}"), "c", "1", "3"], check=True)
    host, ports = socket.gethostname().partition(".")[0], _free_ports(NODES + 1)
    nodes = [
        _NODE.format(number=number, host=host, port=ports[number + 1], cpus=CPUS, gpus=GPUS)
        for number in range(NODES)
    ]
    user = _user()
    conf = _CONF.format(root=root, host=host, ports=ports, user=user, nodes="\n".join(nodes))
    (root / "slurm.conf").write_text(conf)
    gres = f"NodeName=n[0-{NODES - 1}] Name=gpu Type=h100 File={root}/dev/gpu[0-{GPUS - 1}]\n"
    (root / "gres.conf").write_text(gres)
    (root / "cgroup.conf").write_text("CgroupAutomount=no\nConstrainCores=no\n")


def _munge_options(folder: Path) -> list[str]:
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return [f"--{option}={folder / name}" for option, name in files.items()]


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _start(argv: list[str], pid_file: Path, stack: ExitStack) -> None:
    stack.callback(_end, pid_file)
    subprocess.run(argv, check=True, timeout=30)
    _until(lambda: _read_pid(pid_file), f"{argv[0]} is up")


def _read_pid(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _is_alive(pid_file: Path) -> bool:
    pid = _read_pid(pid_file)
    return pid > 0 and any(name in _command_of(pid) for name in _PROGRAMS)


def _end(pid_file: Path) -> None:
    """What a daemon's own file names, if it is one of them still."""
    if _is_alive(pid_file):
        pid = _read_pid(pid_file)
        fd = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


def _until(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + _UP_S
    while not condition():
        assert time.monotonic() < until, f"Slurm: not within {_UP_S:.0f} s: {what}"
        time.sleep(0.05)


def note_of(directory: Path) -> dict[str, object]:
    """What a host's task has told of itself."""
    note: dict[str, object] = json.loads((directory / "node.json").read_text())
    return note
