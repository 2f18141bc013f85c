# Runs at the start of every Python in a run, of any version from 3.8: on a signal, the stacks of all threads
# are appended to a file, also where nobody may look into the process from outside. No fault here does harm.
# A starter forks its runs from a Python that has started already, and enters each of them here.
import os
import sys


def _register() -> None:
    import faulthandler

    rank = os.environ.get("MILKWEED_RANK") or os.environ.get("RANK")
    label = "rank-" + rank if rank else os.environ["MILKWEED_LABEL"]
    name = "%s.stack.%d" % (label, os.getpid())  # noqa: UP031
    path = os.path.join(os.environ["MILKWEED_RUN_DIR"], name)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    number = int(os.environ["MILKWEED_DUMP_SIGNAL"])
    faulthandler.register(number, file=fd, all_threads=True, chain=False)
    if _registered:
        os.close(_registered.pop())
    _registered.append(fd)


def _register_quietly() -> None:
    try:
        _register()
    except Exception:
        return


def _enter_run() -> None:
    if "MILKWEED_DUMP_SIGNAL" in os.environ:
        _register_quietly()
        os.register_at_fork(after_in_child=_register_quietly)


def _become_starter() -> None:
    loaded = set(sys.modules)
    sys.path.insert(0, os.environ["MILKWEED_STARTER"])
    try:
        import milkweed_starter  # type: ignore[import-not-found]
    finally:
        del sys.path[0]
    milkweed_starter.install(_enter_run, loaded)


def _import_the_users() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found] # noqa: F401 - another one, further down the path
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


_registered = []  # type: ignore[var-annotated]
_enter_run()
_import_the_users()
if "MILKWEED_STARTER" in os.environ:
    _become_starter()
