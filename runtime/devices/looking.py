"""The process that looks at devices: `python -m milkweed.runtime.devices.looking nvidia amd`.

It prints one line of JSON, a `DeviceView`. Vendors' libraries may print, crash, and hang with a dead driver:
whatever they do, they do it here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..codec import to_json
from .amd import AmdProbe
from .kernel_lines import read_log, with_log
from .nvidia import NvidiaProbe
from .probe import DeviceProbe, closed, joined
from .records import DeviceView, Vendor

__all__ = ["look", "main"]


def look(probes: Mapping[Vendor, DeviceProbe], log: Sequence[str]) -> DeviceView:
    """What the probes find, and the log says; where one found nothing, why that may be."""
    return with_log(joined(_explained(vendor, probe.look()) for vendor, probe in probes.items()), log)


def _explained(vendor: Vendor, view: DeviceView) -> DeviceView:
    if view.devices:
        return view
    problem, mend = closed(vendor)
    if problem:
        return replace(view, problem=f"{view.problem}; {problem}" if view.problem else problem, mend=mend)
    return view


def main(vendors: Sequence[str]) -> None:
    answer = os.dup(1)
    os.dup2(2, 1)  # what libraries print is not the answer
    every: dict[Vendor, DeviceProbe] = {"nvidia": NvidiaProbe(), "amd": AmdProbe()}
    view = look({vendor: probe for vendor, probe in every.items() if vendor in vendors}, read_log())
    os.write(answer, json.dumps(to_json(view)).encode() + b"\n")
    os._exit(0)  # a library's end may hang too


if __name__ == "__main__":
    main(sys.argv[1:])
