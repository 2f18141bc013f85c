# Loaded by the hook into a rank that makes a torch process group: a thread that writes what torch's flight
# recorder holds when the host agent asks for it, which also works while the main thread waits in C. It is no
# thread of `threading`, and none is there in a program without process groups.
import atexit
import json
import os
import sys
import time
from _thread import get_native_id, start_new_thread

_ASKED = 4096
_REST_S = 0.3
_LOOK_S = 0.002


def serve(directory: str, label: str) -> None:
    """Makes `<label>.ask.<pid>`: a file name that is written there is that of an answer in the directory.

    `NAME` asks for the flight recorder, `profile/SECONDS/NAME` for what torch's profiler sees in that time.
    """
    path = os.path.join(directory, "%s.ask.%d" % (label, os.getpid()))  # noqa: UP031
    os.mkfifo(path, 0o600)
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # with a writer of its own it never reads an end
    start_new_thread(_answer, (fd, directory))
    kept = "%s.flight.%d" % (label, os.getpid())  # noqa: UP031
    atexit.register(_before_the_end, os.path.join(directory, kept), os.getpid())


def tell_group(directory: str, label: str, arguments, timeout) -> None:  # type: ignore[no-untyped-def]
    """What a rank made its first process group with: its own idea of the world."""
    size, rank = arguments[0], arguments[1]
    store = next((one for one in arguments if hasattr(one, "compare_set")), None)
    for _ in range(4):  # it is in others that put a prefix before keys
        store = getattr(store, "underlying_store", store)
    told = {
        "size": int(size),
        "rank": int(rank),
        "host": str(getattr(store, "host", "")),
        "port": int(getattr(store, "port", 0) or 0),
        "timeout_s": timeout.total_seconds() if hasattr(timeout, "total_seconds") else None,
    }
    fd = os.open(os.path.join(directory, label + ".group"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w") as out:
        json.dump(told, out)


def _answer(fd: int, directory: str) -> None:
    while True:
        for name in os.read(fd, _ASKED).decode().split():
            command, _, rest = name.rpartition("/")
            try:
                if command:
                    _profile(os.path.join(directory, rest), float(command.partition("/")[2]))
                else:
                    dump(os.path.join(directory, name))
            except Exception:
                continue


def _profile(path: str, seconds: float) -> None:
    """In a thread of its own: collectives can be asked for meanwhile."""
    from importlib.util import module_from_spec, spec_from_file_location

    file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "milkweed_torch.py")
    spec = spec_from_file_location("milkweed_torch", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    start_new_thread(module.record, (path, seconds))


def _before_the_end(path: str, pid: int) -> None:
    """`last_type` is set by an exception that ends the program, whoever prints it."""
    if os.getpid() != pid:
        return
    try:
        if hasattr(sys, "last_type"):
            dump(path)
        _let_threads_rest()
    except Exception:
        return


def _let_threads_rest() -> None:
    """Gives the interpreter's lock to threads that are still at work, and waits a moment for them.

    A thread of gloo that drops a collective's Python objects while Python ends is made to exit in a C++
    destructor, which aborts the program after all its work was done (torch 2.13, a busy machine: 7 of 240
    ranks that ended right after a backward pass of DDP).
    """
    end = time.monotonic() + _REST_S
    quiet = 0
    while (
        quiet < 2 and time.monotonic() < end
    ):  # at one look a thread may just have begun to wait for the lock
        time.sleep(_LOOK_S)
        quiet = 0 if _others_run() else quiet + 1


def _others_run() -> bool:
    own = str(get_native_id())
    for thread in os.listdir("/proc/self/task"):
        if thread != own:
            try:
                with open("/proc/self/task/%s/stat" % thread) as stat:  # noqa: UP031
                    if stat.read().rpartition(")")[2].split()[0] == "R":
                        return True
            except OSError:
                continue
    return False


def dump(path: str) -> None:
    """Writes the recorder's content as JSON, at once."""
    from torch._C import _distributed_c10d as c10d

    whole = getattr(c10d, "_dump_fr_trace_json", None)
    if whole is not None:
        data = whole()
    else:  # torch before 2.9
        import pickle

        old = getattr(c10d, "_dump_nccl_trace")(True, False, False)  # noqa: B009
        data = json.dumps(pickle.loads(old), default=str).encode()
    fresh = path + ".new"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        os.rename(fresh, path)
    except OSError:
        os.unlink(fresh)
