"""Schedulers give hosts; `find` knows the built-in ones and those of entry points `milkweed.schedulers`."""

from .base import AllocationPlan, HostHandle, HostPlace, Order, Scheduler, SchedulerView, Ticket
from .registry import find, names

__all__ = [
    "AllocationPlan",
    "HostHandle",
    "HostPlace",
    "Order",
    "Scheduler",
    "SchedulerView",
    "Ticket",
    "find",
    "names",
]
