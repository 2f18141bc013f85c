"""From a forked child of the starter to the process of a run.

Everything that can fail comes before the agent is told of the child, and nothing of the user's runs before
the agent has said so: it then waits for this very process, and a child that cannot become what it should is
replaced by a cold start.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from .files import Files, is_importable
from .image import take_image
from .interpreter import reconfigure
from .mending import mend
from .requests import Refused, Request

__all__ = ["Inherited", "become", "introduce", "read_plan", "take_over"]


class Inherited:
    """What the starter knows and its children need.

    Children look at as little else of its memory as they can: what a Python process looks at is copied.

    Attributes:
        files: where imports came from.
        added: variables that the interpreter or an import has set.
        home: the directory of the runs.
        offset: see `reconfigure`.
        modules: names of our own modules, of which a run is to see nothing.
    """

    def __init__(self, files: Files, added: Mapping[bytes, bytes], home: str, offset: int) -> None:
        self.files = files
        self.added = added
        self.home = home
        self.offset = offset
        package = __name__.partition(".")[0]
        self.modules = [name for name in sys.modules if name.partition(".")[0] == package]


def become(request: Request, inherited: Inherited, enter_run: Callable[[], None]) -> None:
    """Returns as the run; `enter_run` is what the hook does for one."""
    introduce(request, lambda: _prepare(request, inherited))
    for name in inherited.modules:
        del sys.modules[name]
    enter_run()
    gc.enable()


def introduce(request: Request, prepare: Callable[[], None]) -> None:
    """Returns once the agent has this process for its child and lets it run; else the process ends here.

    What `prepare` raises is why it cannot start warm.
    """
    try:
        try:
            prepare()
            _wait_for_agent(request)
            answer = b'{"pid": %d, "start_time": %d}' % (os.getpid(), _start_time())
        except Exception as error:
            why = str(error) if isinstance(error, Refused) else repr(error)
            request.answer({"refused": why, "stale": False})
            os._exit(0)
        request.channel.send(answer)
        if not request.channel.recv(16):
            os._exit(0)
    except BaseException:
        os._exit(0)
    request.channel.close()


def _prepare(request: Request, inherited: Inherited) -> None:
    plan = read_plan(request)
    _check(plan, inherited.files, inherited.home)
    take_over(request, plan, inherited.added)
    reconfigure(plan["argv"], inherited.offset)
    mend()
    _renew_main()


def _renew_main() -> None:
    """The interpreter runs the program in the module that it finds by this name.

    That of the starter is frozen: finalizers of globals in it would not run at the end. To unfreeze it, with
    all that was imported, would be to look at that all at the end, and so to copy it.
    """
    old = vars(sys.modules["__main__"])
    main = type(sys)("__main__")
    vars(main).clear()
    vars(main).update(old)
    sys.modules["__main__"] = main


def take_over(request: Request, plan: Mapping[str, Any], added: Mapping[bytes, bytes]) -> None:
    """Session, output, descriptors, command line and environment of the plan become this process's."""
    os.setsid()
    for fd in (1, 2):
        os.dup2(request.output, fd)
    os.close(request.output)
    request.place(plan["fds"])
    argv = [os.fsencode(word) for word in plan["argv"]]
    env = {os.fsencode(name): os.fsencode(value) for name, value in plan["env"].items()}
    take_image(argv, env, added)


def _wait_for_agent(request: Request) -> None:
    """Until the process in the middle has ended, which leaves us to the agent."""
    while os.getppid() == request.middle:
        time.sleep(0.0002)


def read_plan(request: Request) -> dict[str, Any]:
    """What is asked for; to be read once."""
    with open(request.payload, "rb") as file:
        file.seek(0)
        plan: dict[str, Any] = json.load(file)
        return plan


def _check(plan: Mapping[str, Any], files: Files, home: str) -> None:
    """Enters the run's directory, if a script there is to get what was imported.

    Raises:
        Refused: it is not, or the script is no plain file.
    """
    os.chdir(home)
    script = plan["script"]
    if script is not None and is_importable(script):
        raise Refused(f"{script} is a directory or an archive")
    if not getattr(sys.flags, "safe_path", False):
        first = home if script is None else os.path.dirname(os.path.realpath(script))
        if shadowed := files.shadowed(first):
            raise Refused(f"{shadowed} beside the script has the name of a module that is imported already")


def _start_time() -> int:
    fd = os.open("/proc/self/stat", os.O_RDONLY)
    try:
        return int(os.read(fd, 4096).rpartition(b")")[2].split()[19])
    finally:
        os.close(fd)
