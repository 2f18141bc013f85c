# Loaded by the hook into a rank that makes a torch process group: a thread that writes what torch's flight
# recorder holds when the host agent asks for it, which also works while the main thread waits in C. It is no
# thread of `threading`, and none is there in a program without process groups.
import atexit
import json
import os
import sys
from _thread import start_new_thread

_ASKED = 4096


def serve(directory: str, label: str) -> None:
    """Makes `<label>.ask.<pid>`: a file name that is written there is that of an answer in the directory.

    `NAME` asks for the flight recorder, `profile/SECONDS/NAME` for what torch's profiler sees in that time.
    """
    path = os.path.join(directory, "%s.ask.%d" % (label, os.getpid()))  # noqa: UP031
    os.mkfifo(path, 0o600)
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # with a writer of its own it never reads an end
    start_new_thread(_answer, (fd, directory))
    kept = "%s.flight.%d" % (label, os.getpid())  # noqa: UP031
    atexit.register(_keep_if_failed, os.path.join(directory, kept), os.getpid())


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


def _keep_if_failed(path: str, pid: int) -> None:
    """`last_type` is set by an exception that ends the program, whoever prints it."""
    if hasattr(sys, "last_type") and os.getpid() == pid:
        try:
            dump(path)
        except Exception:
            return


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
