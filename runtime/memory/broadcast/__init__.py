"""One buffer to many hosts: each host serves the next while it still receives.

`chain.py` decides who takes from whom, `pieces.py` what to ask for next: both are pure. `leading.py` is the
caller's end, `station.py` a receiver's, `desk.py` what owners answer.
"""

from .desk import Desk
from .future import Broadcasting
from .leading import Outcome, Received, Receiver, lead
from .line import Line, open_line

__all__ = ["Broadcasting", "Desk", "Line", "Outcome", "Received", "Receiver", "lead", "open_line"]
