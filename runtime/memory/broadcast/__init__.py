"""One buffer to many hosts: each host serves the next while it still receives.

`chain.py` decides who takes from whom, `pieces.py` what to ask for next: both are pure. `leading.py` is the
caller's end, imported when something is led; `station.py` a receiver's, `desk.py` what owners answer.
"""

from .desk import Desk
from .future import Broadcasting
from .line import Line, open_line
from .outcome import Outcome, Received, Receiver

__all__ = ["Broadcasting", "Desk", "Line", "Outcome", "Received", "Receiver", "open_line"]
