# Runs at the start of every Python in a run, of any version from 3.8: on a signal, and on one that ends the
# process, the stacks of all threads are appended to a file, also where nobody may look into the process from
# outside; and bytecode of what is mounted goes to plain disk. No fault here does harm.
# A starter forks its runs from a Python that has started already, and enters each of them here.
import os
import sys


def _register() -> None:
    import faulthandler

    name = "%s.stack.%d" % (_label(), os.getpid())  # noqa: UP031
    path = os.path.join(os.environ["MILKWEED_RUN_DIR"], name)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    number = int(os.environ["MILKWEED_DUMP_SIGNAL"])
    faulthandler.register(number, file=fd, all_threads=True, chain=False)
    if _registered:
        os.close(_registered.pop())
    _registered.append(fd)


def _tell_faults() -> None:
    """Forked children share the file: to change it there would take it from one that the user has named."""
    import faulthandler

    if faulthandler.is_enabled():
        return
    name = "%s.fault.%d" % (_label(), os.getpid())  # noqa: UP031
    path = os.path.join(os.environ["MILKWEED_RUN_DIR"], name)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    faulthandler.enable(file=fd, all_threads=True)


def _tell_surroundings() -> None:
    """What this Python really runs in, which a script may have changed: of the first one of each rank."""
    if "MILKWEED_PROC" in os.environ:  # procs are no ranks
        return
    path = os.path.join(os.environ["MILKWEED_RUN_DIR"], _label() + ".python")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    told = ["sys.executable=" + sys.executable, "sys.version=" + sys.version.split()[0]]
    told += [
        name + "=" + value
        for name, value in os.environ.items()
        if not any(word in name.upper() for word in _SECRETS)
    ]
    try:
        os.write(fd, "\0".join(told).encode("utf-8", "surrogateescape"))
    finally:
        os.close(fd)


def _tell_exception_at_exit() -> None:
    """`last_type` is set by an exception that ends the program, whoever prints it."""
    import atexit

    me = os.getpid()

    def tell() -> None:
        if hasattr(sys, "last_type") and os.getpid() == me:
            try:
                modules = _load("milkweed_modules")
                path = os.path.join(os.environ["MILKWEED_RUN_DIR"], _label() + ".%s." + str(me))
            except Exception:
                return
            _quietly(lambda: modules.write_raised(path % "raised"))
            _quietly(lambda: modules.write(path % "modules"))

    atexit.register(tell)


def _quietly(act) -> None:  # type: ignore[no-untyped-def]
    try:
        act()
    except Exception:
        return


def _load(name: str):  # type: ignore[no-untyped-def]
    """A module beside this file, which is on the path no more."""
    import importlib.util

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _label() -> str:
    rank = os.environ.get("MILKWEED_RANK") or os.environ.get("RANK")
    return "rank-" + rank if rank else os.environ["MILKWEED_LABEL"]


def _register_quietly() -> None:
    _quietly(_register)


class _BeforeDistributed:
    """Finds nothing: it waits for torch's process groups to be imported, and is gone then."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != _DISTRIBUTED:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                _after_load(spec.loader, _watch_groups)
                return spec
        return None


def _after_load(loader, act) -> None:  # type: ignore[no-untyped-def]
    load = loader.exec_module

    def load_and_act(module):  # type: ignore[no-untyped-def]
        load(module)
        act(module)

    loader.exec_module = load_and_act


def _watch_groups(module) -> None:  # type: ignore[no-untyped-def]
    """Has the first process group start what can tell of its collectives; no trace is left after that."""
    make_group = getattr(module, _MAKES_GROUPS, None)
    if make_group is None:
        return

    def make_first_group(*args, **kwargs):  # type: ignore[no-untyped-def]
        setattr(module, _MAKES_GROUPS, make_group)
        _quietly(lambda: _serve_flight(args, kwargs))
        return make_group(*args, **kwargs)

    setattr(module, _MAKES_GROUPS, make_first_group)


def _serve_flight(args, kwargs) -> None:  # type: ignore[no-untyped-def]
    flight = _load("milkweed_flight")
    flight.serve(os.environ["MILKWEED_RUN_DIR"], _label())
    flight.tell_group(os.environ["MILKWEED_RUN_DIR"], _label(), args, kwargs.get("timeout"))


def _watch_collectives() -> None:
    sys.meta_path.insert(0, _BeforeDistributed())
    if _DISTRIBUTED in sys.modules:  # the finder has nothing to do: it is there as in a cold start
        _watch_groups(sys.modules[_DISTRIBUTED])


def _move_bytecode() -> None:
    # As with PYTHONPYCACHEPREFIX, which wins, but for environments: theirs is there already.
    plain = os.environ["MILKWEED_BYTECODE"]
    roots = os.environ["MILKWEED_BYTECODE_OF"].split("\n")
    if not hasattr(sys, "pycache_prefix") or not os.access(plain, os.W_OK | os.X_OK):
        return
    import _frozen_importlib_external as loading

    find, find_source = loading.cache_from_source, loading.source_from_cache

    def cache_from_source(path, *args, **named):  # type: ignore[no-untyped-def]
        found = find(path, *args, **named)
        if sys.pycache_prefix is not None:
            return found
        try:
            whole = found if found[:1] == "/" else os.getcwd() + "/" + found
        except OSError:
            return found
        folder, _, name = whole.rpartition("/__pycache__/")
        for root in roots:
            below = folder[len(root) :] + "/"
            if folder.startswith(root) and below[0] == "/" and not any(part in below for part in _THEIRS):
                return plain + folder + "/" + name
        return found

    def source_from_cache(path):  # type: ignore[no-untyped-def]
        text = os.fspath(path)
        if sys.pycache_prefix is None and text.startswith(plain + "/"):
            folder, _, name = text[len(plain) :].rpartition("/")
            path = folder + "/__pycache__/" + name
        return find_source(path)

    for ours, theirs in ((cache_from_source, find), (source_from_cache, find_source)):
        ours.__doc__ = theirs.__doc__
        ours.__wrapped__ = theirs  # type: ignore[attr-defined]
        for module in (loading, sys.modules.get("importlib.util")):
            if module is not None:
                setattr(module, theirs.__name__, ours)


def _enter_run() -> None:
    if "MILKWEED_DUMP_SIGNAL" in os.environ:
        _register_quietly()
        os.register_at_fork(after_in_child=_register_quietly)
        _quietly(_tell_faults)
        _quietly(_tell_surroundings)
        _quietly(_tell_exception_at_exit)
        _watch_collectives()
    if "MILKWEED_BYTECODE" in os.environ:
        _quietly(_move_bytecode)


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


class _Offer:
    """Asked last of all: where no Milkweed is installed, `import milkweed` gives its `report`."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def] # noqa: ARG004
        if name != "milkweed":
            return None
        from importlib.util import spec_from_file_location

        here = os.path.dirname(os.path.abspath(__file__))
        return spec_from_file_location(name, os.path.join(here, "offered", "milkweed.py"))


_SECRETS = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE")
_DISTRIBUTED = "torch.distributed.distributed_c10d"
_MAKES_GROUPS = "_new_process_group_helper"
_THEIRS = ("/site-packages/", "/dist-packages/", "/lib/python3", "/../")
_registered = []  # type: ignore[var-annotated]
_enter_run()
sys.meta_path.append(_Offer)
_import_the_users()
if "MILKWEED_STARTER" in os.environ:
    _become_starter()
