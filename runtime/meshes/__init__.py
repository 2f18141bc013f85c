"""Meshes of hosts, procs and actors, and the values that calls on them give."""

from __future__ import annotations

from .shaped import Shaped
from .value_mesh import Failed, ValueMesh

__all__ = ["Failed", "Shaped", "ValueMesh"]
