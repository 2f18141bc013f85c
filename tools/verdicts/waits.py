"""What a thread waits in, told from the library frames above the user's own code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...runtime.records import Frame
from .frames import is_library, is_native

__all__ = ["Wait", "find_wait"]

# `backward` may be a collective too: DistributedDataParallel reduces gradients in it, out of Python's sight.
Kind = Literal["collective", "backward", "blocked", "busy", "unknown"]


@dataclass(frozen=True, slots=True)
class Wait:
    """`what` in a few words (empty when the frames do not tell); a collective waits for other ranks."""

    kind: Kind
    what: str


_COLLECTIVE_NAMES = """
    all_reduce all_reduce_coalesced all_gather all_gather_coalesced all_gather_into_tensor all_gather_object
    all_gather_tensor all_to_all all_to_all_single barrier monitored_barrier broadcast broadcast_object_list
    gather gather_object scatter scatter_object_list reduce reduce_scatter reduce_scatter_tensor
    send send_object_list recv recv_object_list isend irecv batch_isend_irecv wait_tensor
    init_process_group destroy_process_group new_group new_subgroups init_device_mesh _store_based_barrier
    _verify_params_across_processes _sync_module_states _broadcast_coalesced clip_grad_norm_
"""
_COLLECTIVES = frozenset(_COLLECTIVE_NAMES.split())
# Functions of a file (by the end of its path) that say what is waited in; "" stands for any function.
_KNOWN: tuple[tuple[str, Mapping[str, str], Kind], ...] = (
    ("torch/distributed/rendezvous.py", {"": "rendezvous"}, "collective"),
    ("torch/distributed/checkpoint/state_dict_saver.py", {"save": "a distributed checkpoint"}, "collective"),
    ("torch/distributed/checkpoint/state_dict_loader.py", {"load": "a distributed checkpoint"}, "collective"),
    ("torch/nn/parallel/distributed.py", {"__init__": "DistributedDataParallel's set-up"}, "collective"),
    ("torch/autograd/graph.py", {"_engine_run_backward": "backward"}, "backward"),
    ("torch/cuda/__init__.py", {"synchronize": "cuda.synchronize"}, "blocked"),
    (
        "torch/utils/data/dataloader.py",
        {"_get_data": "DataLoader (next batch)", "_try_get_data": "DataLoader (next batch)"},
        "blocked",
    ),
    ("torch/utils/data/_utils/worker.py", {"_worker_loop": "DataLoader worker"}, "busy"),
    ("/threading.py", {"join": "Thread.join", "wait": "a lock or event (threading)"}, "blocked"),
    ("/queue.py", {"get": "Queue.get", "put": "Queue.put"}, "blocked"),
    ("/multiprocessing/queues.py", {"get": "multiprocessing Queue.get", "put": "Queue.put"}, "blocked"),
    ("/multiprocessing/process.py", {"join": "Process.join"}, "blocked"),
    ("/multiprocessing/popen_fork.py", {"wait": "Process.join"}, "blocked"),
    ("/multiprocessing/connection.py", {"": "a pipe (multiprocessing)"}, "blocked"),
    ("/multiprocessing/synchronize.py", {"": "a lock (multiprocessing)"}, "blocked"),
    ("/concurrent/futures/_base.py", {"result": "Future.result", "wait": "futures.wait"}, "blocked"),
    (
        "/subprocess.py",
        {"wait": "a subprocess", "communicate": "a subprocess", "_wait": "a subprocess"},
        "blocked",
    ),
    ("/asyncio/tasks.py", {"sleep": "asyncio.sleep"}, "blocked"),
    ("/asyncio/locks.py", {"acquire": "an asyncio lock", "wait": "an asyncio event"}, "blocked"),
    ("/asyncio/queues.py", {"get": "asyncio Queue.get", "put": "asyncio Queue.put"}, "blocked"),
    ("/asyncio/base_events.py", {"_run_once": "the asyncio loop"}, "blocked"),
    ("/milkweed/runtime/node/future.py", {"get": "a Future", "__await__": "a Future"}, "blocked"),
    ("/socket.py", {"": "a socket"}, "blocked"),
    ("/ssl.py", {"": "a socket (TLS)"}, "blocked"),
    ("/selectors.py", {"select": "select (socket or pipe)"}, "blocked"),
    ("/pdb.py", {"": "the debugger's prompt (pdb)"}, "blocked"),
    ("<frozen importlib._bootstrap>", {"": "import"}, "busy"),
)


def find_wait(frames: Sequence[Frame]) -> Wait:
    """What the innermost call of the user's code is in; frames innermost first.

    Of several known functions on top of each other the collective nearest to the user's code counts, else the
    known function nearest to it that says more than a plain lock or socket.
    """
    found: list[Wait] = []
    for frame in frames:
        if is_native(frame.file):
            continue
        if not is_library(frame.file):
            break
        wait = _known(frame)
        if wait is not None:
            found.append(wait)
    collectives = [wait for wait in found if wait.kind == "collective"]
    if collectives:
        return collectives[-1]
    return found[-1] if found else Wait("unknown", "")


def _known(frame: Frame) -> Wait | None:
    function = frame.function.rsplit(".", 1)[-1]
    if "torch/distributed/" in frame.file and function in _COLLECTIVES:
        return Wait("collective", function)
    for ending, names, kind in _KNOWN:
        if frame.file.endswith(ending):
            what = names.get(function) or names.get("")
            if what is not None:
                return Wait(kind, what)
    return None
