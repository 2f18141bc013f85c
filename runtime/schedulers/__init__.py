"""Schedulers give hosts; `find` knows the built-in ones and those of entry points `milkweed.schedulers`."""

from .base import HostHandle, HostPlace, Scheduler, SchedulerView
from .registry import find, names

__all__ = ["HostHandle", "HostPlace", "Scheduler", "SchedulerView", "find", "names"]
