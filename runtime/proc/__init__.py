"""A process that runs actors: `python -m milkweed.runtime.proc`, started by a host agent.

Its main thread runs sync endpoints (`main_thread.py`), its node's loop reads messages (`actors.py`) and runs
async ones (`turns.py`), and threads on a socket of its own answer pings and cancels whatever those do
(`control.py`).
"""

from .context import ActorContext, current, current_rank, current_size
from .main import place

__all__ = ["ActorContext", "current", "current_rank", "current_size", "place"]
