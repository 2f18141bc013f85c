"""Looking whether the hosts of a mesh are fit: what each one has, and how fast memory moves between them.

`records.py` is what is found, `probes.py` how a host is looked at, `planning.py` (pure) who reads from whom
and when, `checker.py` the actor that does it, `checking.py` the whole on one mesh. What that means is
judged elsewhere. This face has no more than the latter needs: the rest is imported by a keeper that checks.
"""

from .planning import apart, median, slow_links
from .records import (
    LATE,
    AllReduce,
    Clock,
    HostCheck,
    HostFacts,
    LinkCheck,
    Measured,
    MeshCheck,
    RdmaPort,
    RdmaView,
    Surroundings,
    Turn,
)

__all__ = [
    "LATE",
    "AllReduce",
    "Clock",
    "HostCheck",
    "HostFacts",
    "LinkCheck",
    "Measured",
    "MeshCheck",
    "RdmaPort",
    "RdmaView",
    "Surroundings",
    "Turn",
    "apart",
    "median",
    "slow_links",
]
