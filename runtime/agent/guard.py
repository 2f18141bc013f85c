"""The guard: parent of a host agent, which ends everything that the agent leaves behind.

    python -I -S guard.py [--epilogue JSON_ARGV]... [--grace SECONDS] [--log FILE] -- AGENT ARGV...

It becomes a session leader and a subreaper, starts the agent, and waits. When the agent ends in whatever way,
the guard kills all descendants that are left, reaps them, runs the epilogues (commands, each with a short
deadline), and exits with the agent's exit code, or 128 + N when signal N killed the agent. SIGTERM or SIGINT
to the guard: SIGTERM to the agent, SIGKILL after the grace, then the same. The agent finds the guard's pid in
MILKWEED_GUARD_PID.

This file imports nothing of the package and as little as it can: it waits for the life of a mesh and is to be
small.
"""

import contextlib
import os
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
EPILOGUE_S = 10.0
SWEEP_S = 20.0
DAY_S = 86400.0
CANNOT_START = 127
WAKE = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
RESET = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)
USAGE = "usage: guard.py [--epilogue JSON_ARGV]... [--grace SECONDS] [--log FILE] -- AGENT ARGV..."


class Options:
    def __init__(self, argv: list[str]) -> None:
        """Raises ValueError with a text for the user."""
        self.epilogues: list[str] = []
        self.grace_s = 5.0
        self.log = ""
        rest = list(argv)
        while rest and rest[0] != "--":
            name, value = rest[0], rest[1] if len(rest) > 1 else ""
            if name == "--epilogue" and value.startswith("["):
                self.epilogues.append(value)
            elif name == "--grace" and value:
                self.grace_s = float(value)
            elif name == "--log" and value:
                self.log = value
            else:
                raise ValueError(f"unknown or incomplete option {name!r}\n{USAGE}")
            del rest[:2]
        self.agent = rest[1:]
        if not self.agent:
            raise ValueError(f"no agent to start\n{USAGE}")


class Log:
    """Lines in a file, or on stderr. A full disk is no reason to stop."""

    def __init__(self, path: str) -> None:
        self.fd = 2
        if path:
            with contextlib.suppress(OSError):
                self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def say(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        with contextlib.suppress(OSError):
            os.write(self.fd, f"{stamp}Z guard {os.getpid()}: {text}\n".encode())


def main(argv: list[str]) -> int:
    try:
        options = Options(argv)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    log = Log(options.log)
    prepare()
    agent = start(options.agent, log, {**os.environ, "MILKWEED_GUARD_PID": str(os.getpid())})
    return CANNOT_START if agent is None else watch(agent, options, log)


def prepare() -> None:
    """Makes this process fit to be the agent's parent."""
    with contextlib.suppress(PermissionError):  # it is a session leader already
        os.setsid()
    become_subreaper()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAKE)


def watch(agent: int, options: Options, log: Log) -> int:
    """Waits for the agent, ends what it left, and returns the guard's exit code."""
    log.say(f"agent {agent} started")
    status = None
    try:
        status = wait_for_agent(agent, options.grace_s, log)
    finally:
        # Whatever went wrong above, nothing is left behind.
        left = sweep(SWEEP_S, log)
        for text in options.epilogues:
            run_epilogue(text, log)
        if left:
            left = sweep(SWEEP_S, log)
        if left:
            log.say(f"still in the kernel, with SIGKILL pending: {sorted(left)}")
    code = os.waitstatus_to_exitcode(status)
    log.say(f"agent {agent} ended: {'exit' if code >= 0 else 'signal'} {abs(code)}")
    return code if code >= 0 else 128 - code


def become_subreaper() -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def start(argv: list[str], log: Log, environ: dict[str, str]) -> "int | None":
    try:
        return os.posix_spawnp(argv[0], argv, environ, setsigmask=(), setsigdef=RESET)
    except OSError as error:
        log.say(f"cannot start {argv[0]}: {error.strerror}")
        return None


def wait_for_agent(agent: int, grace_s: float, log: Log) -> int:
    """Reaps whatever ends until the agent has; returns the agent's wait status."""
    kill_at = None
    while True:
        status = reap().get(agent)
        if status is not None:
            return status
        left = DAY_S if kill_at is None else max(0.0, kill_at - time.monotonic())
        woken = signal.sigtimedwait(WAKE, left)
        if woken is None and kill_at is None:
            continue
        if woken is None:
            log.say(f"agent {agent} did not end within {grace_s:g} s")
            os.kill(agent, signal.SIGKILL)  # our child and not reaped: the pid is still its own
            kill_at = time.monotonic() + grace_s
        elif woken.si_signo != signal.SIGCHLD and kill_at is None:
            log.say(f"{signal.Signals(woken.si_signo).name}: ending agent {agent}")
            os.kill(agent, signal.SIGTERM)
            kill_at = time.monotonic() + grace_s


def reap() -> "dict[int, int]":
    """Wait statuses of all children that have ended."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def sweep(seconds: float, log: Log) -> "set[int]":
    """Kills and reaps all descendants until none is left or the time is up; returns those that are left."""
    deadline = time.monotonic() + seconds
    killed: set[tuple[int, int]] = set()
    left: set[int] = set()
    pause = 0.002
    while True:
        reap()
        # A subreaper without children has no descendants; a walk over /proc may miss one that forks now.
        if is_childless() or time.monotonic() > deadline:
            if killed:
                log.say(f"ended {len(killed)} processes that the agent left")
            return set() if is_childless() else left
        alive = descendants()
        left = set(alive)
        for pid, start_time in alive.items():
            if kill(pid, start_time):
                killed.add((pid, start_time))
        signal.sigtimedwait((signal.SIGCHLD,), pause)
        pause = min(pause * 2, 0.1)


def is_childless() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def descendants() -> "dict[int, int]":
    """Pid and start time of every living process below this one."""
    children: dict[int, list[int]] = {}
    start_times = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat_of(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
            if fields[0] not in (b"Z", b"X") or int(fields[17]) > 1:  # a zombie that has other threads lives
                start_times[int(name)] = int(fields[19])
    found = {}
    todo = [os.getpid()]
    while todo:
        for pid in children.get(todo.pop(), ()):
            todo.append(pid)
            if pid in start_times:
                found[pid] = start_times[pid]
    return found


def stat_of(pid: int) -> "list[bytes]":
    """Fields of /proc/PID/stat after the command: state, parent, ... [17] threads, [19] start time."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return []
    try:
        text = os.read(fd, 4096)
    except OSError:
        return []
    finally:
        os.close(fd)
    return text[text.rindex(b")") + 2 :].split()


def kill(pid: int, start_time: int) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        fields = stat_of(pid)
        # The descriptor holds the pid, so a right start time now was right when it was opened.
        if not fields or int(fields[19]) != start_time:
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def run_epilogue(text: str, log: Log) -> None:
    import json

    try:
        argv = [str(item) for item in json.loads(text)]
    except ValueError as error:
        log.say(f"epilogue {text!r} is no JSON list: {error}")
        return
    pid = start(argv, log, dict(os.environ)) if argv else None
    if pid is None:
        return
    deadline = time.monotonic() + EPILOGUE_S
    while True:
        status = reap().get(pid)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            if code:
                log.say(f"epilogue {argv} ended with {code}")
            return
        if time.monotonic() > deadline:
            log.say(f"epilogue {argv} took over {EPILOGUE_S:g} s and was ended")
            sweep(1.0, log)
            return
        signal.sigtimedwait((signal.SIGCHLD,), 0.2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
