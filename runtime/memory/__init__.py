"""One-sided memory: buffers of one process that others read and write by themselves."""

from .broadcast import Received
from .buffer import RDMAAction, RDMABuffer
from .choosing import Transport

__all__ = ["RDMAAction", "RDMABuffer", "Received", "Transport"]
