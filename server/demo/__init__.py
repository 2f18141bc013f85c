"""The main job from end to end on this machine, as an agent would do it: `milkweed demo`."""

from ..screen import open_screen
from .story import DemoFailed, play

__all__ = ["DemoFailed", "open_screen", "play"]
