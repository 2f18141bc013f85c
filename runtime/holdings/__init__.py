"""Files that only the hosts of a mesh have: what they are, which matter, how they outlive it."""

from .judging import KeepRule, is_checkpoint, kept_by, matters
from .keeping import Kept, keep, make_private, open_up
from .layout import HostLayout, MountPlace
from .records import HeldFile, HostHoldings, Place
from .survey import survey

__all__ = [
    "HeldFile",
    "HostHoldings",
    "HostLayout",
    "KeepRule",
    "Kept",
    "MountPlace",
    "Place",
    "is_checkpoint",
    "keep",
    "kept_by",
    "make_private",
    "matters",
    "open_up",
    "survey",
]
