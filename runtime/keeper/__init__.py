"""The keeper: the process that owns one mesh. `python -m milkweed.runtime.keeper --mesh ID` runs it."""

from .main import run_keeper
from .mesh_keeper import MeshKeeper, Released
from .reader import Reader, choose_ranks, read_from_disk
from .run_control import RunControl

__all__ = ["MeshKeeper", "Reader", "Released", "RunControl", "choose_ranks", "read_from_disk", "run_keeper"]
