"""The nursery: starts many hosts by forking guards and agents from one process, and ends.

    python -m milkweed.runtime.agent.forked.nursery <ORDERS >ANSWERS

An order is a line of JSON, {"argv": [...], "env": {...}, "log": PATH}, whose `argv` is that of a guard with
an agent; its answer a line with `pid` and `start_time`, or `error`. When all are given, standard input ends:
they are started together. Its exit code is 3 where hosts of this machine cannot be forked.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from .. import guard
from ..agent_step import PROC_COMMAND, agent_step
from ..ptree import read_process
from ..warm_modules import modules_of_procs
from .image import image_of, take_image
from .inherited import Inherited, inherit, settle
from .steps import Step, run_steps

__all__ = ["UNFIT", "main"]

UNFIT = 3


def main() -> None:
    orders = [json.loads(line) for line in sys.stdin]
    try:
        _import_late_parts()
        inherited = inherit(PROC_COMMAND[1], modules_of_procs(os.environ))
        settle(inherited)
        _try_out()
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(UNFIT)
    run_steps(partial(_start_all, orders, inherited))


def _import_late_parts() -> None:
    """What anyio imports when it is first used."""
    anyio.run(anyio.lowlevel.checkpoint)
    for name in dir(anyio):
        getattr(anyio, name)


def _start_all(orders: Sequence[Mapping[str, Any]], inherited: Inherited) -> Step | None:
    answers: list[Mapping[str, object]] = []
    for order in orders:
        try:
            log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            answers.append({"error": f"{order['log']}: {error.strerror}"})
            continue
        pid = os.fork()
        if pid == 0:
            return partial(_guard_step, order, log, inherited)
        os.close(log)
        process = read_process(pid)
        answers.append({"pid": pid, "start_time": process.start_time if process else 0})
    sys.stdout.write("".join(json.dumps(answer) + "\n" for answer in answers))
    sys.stdout.flush()
    os._exit(0)


def _guard_step(order: Mapping[str, Any], log: int, inherited: Inherited) -> Step | None:
    """As a guard that was executed with the order's words; returns as its agent."""
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for fd, number in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, number)
    os.close(null)
    os.close(log)
    _be(order["argv"], order["env"])
    options = guard.Options(order["argv"][4:])
    guard.prepare()
    words = guard.Log(options.log)
    me = os.getpid()
    agent = os.fork()
    if agent:
        os._exit(_watch(agent, options, words))
    if words.fd > 2:
        os.close(words.fd)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _be(options.agent, {**order["env"], "MILKWEED_GUARD_PID": str(me)})
    gc.enable()
    return partial(_agent_step, Path(options.agent[-1]), inherited)


def _watch(agent: int, options: guard.Options, log: guard.Log) -> int:
    try:
        return guard.watch(agent, options, log)
    except BaseException as error:
        log.say(f"{type(error).__name__}: {error}")
        return 1


def _agent_step(config_file: Path, inherited: Inherited) -> Step | None:
    """An agent ends without the end of an interpreter, which would write to all that it shares."""
    code = 1
    agent = os.getpid()
    try:
        step = agent_step(config_file, inherited)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    if os.getpid() != agent:
        return step
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _be(argv: Sequence[str], env: Mapping[str, str]) -> None:
    take_image(image_of(argv, env))
    sys.orig_argv = list(argv)


def _try_out() -> None:
    """
    Raises:
        RuntimeError: this kernel lets no process look like another.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _be(["python", "word"], {"A": "1"})
            with open("/proc/self/environ", "rb") as file:
                code = int(file.read() != b"A=1\0")
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("this kernel lets no process look like another")


if __name__ == "__main__":
    main()
