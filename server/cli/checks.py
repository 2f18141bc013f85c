"""What Milkweed can use on this machine, each thing really tried, and the command that mends it."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...runtime.errors import MilkweedError, Unavailable
from ...runtime.index import Index
from ...runtime.mounts import Facts, in_the_way, probe
from ...runtime.paths import Places
from ...runtime.schedulers import namespaces
from ...runtime.services.stacks import find_pyspy, ptrace_mend

__all__ = ["CHECKS", "Check", "State"]

# missing: Milkweed does not work; warning: something of it does not; absent: not here, and nothing wrong.
State = Literal["ok", "warning", "missing", "absent"]

_FREE_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    state: State
    detail: str
    mend: str = ""


def check_kernel() -> Check:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        return Check("kernel", "missing", f"no pidfd: {error}", "Use Linux 5.3 or later.")
    return Check("kernel", "ok", f"Linux {os.uname().release}, Python {sys.version.split()[0]}")


def check_directories() -> Check:
    try:
        places = Places.from_environment()
        places.mesh("mesh-" + "x" * 36)
    except MilkweedError as error:
        return Check("directories", "missing", error.cause, error.next_step)
    probe = places.runtime / f"d{os.getpid()}"
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(probe))
    except OSError as error:
        return Check(
            "directories", "missing", f"no socket in {places.runtime}: {error.strerror}",
            "Set MILKWEED_RUNTIME_DIR to a directory on a local disk.",
        )  # fmt: skip
    finally:
        probe.unlink(missing_ok=True)
    return Check("directories", "ok", f"state {places.state}, sockets {places.runtime}")


def check_index() -> Check:
    """Opened as every command opens it; the first command makes one."""
    try:
        path = Places.from_environment().index
    except MilkweedError as error:
        return Check("index", "missing", error.cause, error.next_step)
    if not path.exists():
        return Check("index", "ok", "no mesh yet")
    try:
        Index(path).close()
    except MilkweedError as error:
        aside = f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.old')}"
        mend = aside if error.code == "index_unreadable" else error.next_step
        return Check("index", "missing", error.cause, mend)
    return Check("index", "ok", str(path))


def check_disk() -> Check:
    try:
        places = Places.from_environment()
        free = shutil.disk_usage(places.state).free
    except (MilkweedError, OSError) as error:
        return Check("disk", "warning", str(error))
    detail = f"{free / 1024**3:.1f} GiB free at {places.state}"
    if free < _FREE_BYTES:
        return Check("disk", "warning", detail, "Make room, or set MILKWEED_STATE_DIR to a larger disk.")
    return Check("disk", "ok", detail)


def check_pyspy() -> Check:
    """Dumps the stacks of a child, as `stack_dump` would."""
    binary = find_pyspy()
    if binary is None:
        return Check("py-spy", "warning", "not installed", f"{sys.executable} -m pip install py-spy")
    with _sleeping_python() as pid:
        done = _try([binary, "dump", "--pid", str(pid)])
        if done.returncode == 0:
            return Check("py-spy", "ok", f"dumps the stacks of other processes ({binary})")
        detail = "may not read other processes; stacks then come from inside the ranks, without native frames"
        return Check("py-spy", "warning", detail, ptrace_mend(pid))


def check_namespaces() -> Check:
    try:
        namespaces.check_possible()
    except Unavailable as error:
        return Check("namespaces", "warning", f"hosts cannot be isolated: {error.cause}", error.next_step)
    return Check("namespaces", "ok", 'hosts can be isolated: options={"isolation": "namespaces"}')


def check_mounts(facts: Facts | None = None) -> Check:
    """Whether hosts can show a directory by a mount (`workspace_mode="mount"`)."""
    mends = in_the_way(probe() if facts is None else facts)
    if mends:
        return Check(
            "mounts", "absent", f"hosts share or copy directories: {mends[0].problem}", mends[0].mend
        )
    return Check("mounts", "ok", 'hosts can mount directories: workspace_mode="mount"')


def check_torch() -> Check:
    own = Path.cwd() / ".venv" / "bin" / "python"
    python = str(own) if own.exists() else sys.executable
    code = "import torch; print(torch.__version__, torch.cuda.is_available())"
    done = _try([python, "-c", code], timeout_s=60)
    if done.returncode == 0:
        version, accelerated = done.stdout.split()[-2:]
        return Check(
            "torch", "ok", f"{version} in {python}, accelerator: {'yes' if accelerated == 'True' else 'no'}"
        )
    return Check(
        "torch", "absent", f"not in {python}: {_last_line(done.stderr)}", f"{python} -m pip install torch"
    )


def check_gpus() -> Check:
    found = []
    for program, arguments in (("nvidia-smi", ["-L"]), ("rocm-smi", ["--showproductname"])):
        if shutil.which(program) is None:
            continue
        done = _try([program, *arguments])
        if done.returncode != 0:
            why = _last_line(done.stderr or done.stdout)
            return Check("GPUs", "warning", f"{program} fails: {why}", "Look at the driver: dmesg | tail")
        count = sum("GPU" in line for line in done.stdout.splitlines())
        found.append(f"{program}: {count} GPUs" if program == "nvidia-smi" else f"{program} answers")
    if not found:
        return Check("GPUs", "absent", "neither nvidia-smi nor rocm-smi: ranks run on the CPU")
    return Check("GPUs", "ok", ", ".join(found))


def check_logind() -> Check:
    """Whether the end of a login session would end keepers and hosts."""
    if not Path("/run/systemd/seats").exists():
        return Check("logind", "absent", "no login manager: hosts live as long as this machine or container")
    user = os.environ.get("USER") or str(os.getuid())
    lingers = Path("/var/lib/systemd/linger", user).exists()
    if _kills_user_processes() and not lingers and os.getuid() != 0:
        return Check(
            "logind", "warning", "hosts end with your login session (KillUserProcesses=yes)",
            f"loginctl enable-linger {user}",
        )  # fmt: skip
    return Check("logind", "ok", "hosts go on when you log out")


CHECKS: tuple[Callable[[], Check], ...] = (
    check_kernel,
    check_directories,
    check_index,
    check_disk,
    check_pyspy,
    check_namespaces,
    check_mounts,
    check_torch,
    check_gpus,
    check_logind,
)


def _kills_user_processes() -> bool:
    value = "no"
    files = [Path("/etc/systemd/logind.conf"), *sorted(Path("/etc/systemd/logind.conf.d").glob("*.conf"))]
    for file in files:
        try:
            lines = file.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, setting = line.partition("=")
            if name.strip() == "KillUserProcesses":
                value = setting.strip()
    return value.lower() in ("yes", "true", "1", "on")


@contextmanager
def _sleeping_python() -> Iterator[int]:
    code = "print(flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield child.pid
        finally:
            child.kill()


def _try(argv: list[str], timeout_s: float = 15) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(argv, 1, "", str(error))


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip()[:200] if lines else "no reason given"
