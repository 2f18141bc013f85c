"""Schedulers by name: built in, or from a library's entry point `milkweed.schedulers` (a callable)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from ..errors import InvalidArgument, Unavailable
from ..names import quoted
from .base import Scheduler
from .local import LocalScheduler
from .slurm import SlurmScheduler

__all__ = ["find", "names"]

GROUP = "milkweed.schedulers"
_BUILT_IN: dict[str, Callable[[], Scheduler]] = {"local": LocalScheduler, "slurm": SlurmScheduler}


def names() -> tuple[str, ...]:
    return (*_BUILT_IN, *(entry.name for entry in entry_points(group=GROUP) if entry.name not in _BUILT_IN))


def find(name: str) -> Scheduler:
    """
    Raises:
        InvalidArgument: there is no scheduler of that name.
    """
    if make := _BUILT_IN.get(name):
        return make()
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            try:
                scheduler: Scheduler = entry.load()()
            except Exception as error:
                raise Unavailable(
                    "scheduler_unusable",
                    f"the scheduler {name!r} ({entry.value}) cannot be loaded:"
                    f" {type(error).__name__}: {error}",
                    "Mend or uninstall the package that offers it.",
                ) from error
            return scheduler
    raise InvalidArgument(
        "invalid_argument",
        f"no scheduler '{quoted(name)}'; schedulers here: {', '.join(names())}",
        "Call list_schedulers.",
    )
