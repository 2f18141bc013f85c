"""What imports remember of the process they ran in, made right for a child of it."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from typing import Any

__all__ = ["mend"]


def mend(*, finders: bool = True) -> None:
    """Random states, keys and times that a process of its own would not share with its siblings.

    `random`, `uuid`, `secrets` and `tempfile` see to it themselves. Without `finders`, what imports remember
    of directories is left to them, as ever.
    """
    time.tzset()
    if finders:
        importlib.invalidate_caches()
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
    logging, process = _loaded("logging"), _loaded("multiprocessing.process")
    if logging is not None and hasattr(logging, "_startTime"):
        now = time.time_ns() if isinstance(logging._startTime, int) else time.time()
        logging._startTime = now
    if process is not None:
        process.current_process()._config["authkey"] = process.AuthenticationString(os.urandom(32))
    if (numpy_random := _loaded("numpy.random")) is not None:
        numpy_random.seed()
    if (torch := _loaded("torch")) is not None:
        torch.default_generator.seed()


def _loaded(name: str) -> Any:
    return sys.modules.get(name)
