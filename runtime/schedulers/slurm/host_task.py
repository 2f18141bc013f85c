"""What Slurm starts on each node of a mesh: tells who it is, then becomes the host's command.

    python -I -S host_task.py MESH_DIRECTORY SOCKET_DIRECTORY

The host's number is the task's. Its `node.json` tells the keeper where it runs and by which process; by its
environment the host knows its name, and how often it was started before. This file imports nothing of the
package: it runs with whatever of the node's environment there is.
"""

import json
import os
import socket
import sys

NODE_FILE = "node.json"
COMMAND_FILE = "command.json"
# Programs that find more of Slurm's variables take the ranks for tasks of a job step.
KEPT = (
    "SLURM_CONF",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_ACCOUNT",
    "SLURM_CLUSTER_NAME",
    "SLURMD_NODENAME",
)
DROPPED = ("SLURM", "SBATCH_", "SRUN_", "PMI_", "PMI2_", "PMIX_")


def main(argv: "list[str]") -> None:
    root, sockets = argv
    host = int(os.environ["SLURM_PROCID"])
    directory = os.path.join(root, "hosts", str(host))
    with open(os.path.join(directory, COMMAND_FILE)) as file:
        command = json.load(file)
    os.makedirs(sockets, mode=0o700, exist_ok=True)
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    life = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    write(
        os.path.join(directory, NODE_FILE),
        {
            "node": node,
            "job": int(os.environ["SLURM_JOB_ID"]),
            "life": life,
            "pid": os.getpid(),
            "start_time": start_time(),
            "boot": boot_id(),
        },
    )
    output = os.open(os.path.join(directory, "agent.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, source in ((0, null), (1, output), (2, output)):
        os.dup2(source, fd)
    os.closerange(3, 256)
    os.execve(command["argv"][0], command["argv"], environment(dict(os.environ), command["env"], node, life))


def environment(found: "dict[str, str]", given: "dict[str, str]", node: str, life: int) -> "dict[str, str]":
    """Of what Slurm gave: all but what is about its tasks."""
    kept = {name: value for name, value in found.items() if name in KEPT or not name.startswith(DROPPED)}
    return {**kept, **given, "MILKWEED_HOST_NAME": node, "MILKWEED_HOST_LIFE": str(life)}


def write(path: str, record: "dict[str, object]") -> None:
    """Whoever reads it sees all of it."""
    fresh = f"{path}.new"
    with open(fresh, "w") as file:
        json.dump(record, file)
    os.replace(fresh, path)


def start_time() -> int:
    """Clock ticks from boot to our start, which an exec does not change."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


if __name__ == "__main__":
    main(sys.argv[1:])
