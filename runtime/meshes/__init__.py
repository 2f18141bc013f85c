"""Meshes: hosts, procs on them, actors on those, and the values that calls give.

A mesh of any kind is sliced and reshaped by the names of its dimensions (`shaped.py`).
"""

from .actor_mesh import ActorMesh, Endpoint, Stream
from .broadcasting import broadcast_buffer
from .host_mesh import HostMesh
from .local_proc import LocalProc, this_proc
from .places import attach, this_host
from .proc_mesh import ProcMesh
from .reduced import Reduced
from .shaped import Shaped
from .value_mesh import Failed, ValueMesh

__all__ = [
    "ActorMesh",
    "Endpoint",
    "Failed",
    "HostMesh",
    "LocalProc",
    "ProcMesh",
    "Reduced",
    "Shaped",
    "Stream",
    "ValueMesh",
    "attach",
    "broadcast_buffer",
    "this_host",
    "this_proc",
]
