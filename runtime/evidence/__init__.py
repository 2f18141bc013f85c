"""What is found out about a run, on all its hosts, for a verdict: collected here, judged elsewhere."""

from .records import (
    Collective,
    Disk,
    Fault,
    Fingerprint,
    Flight,
    Group,
    HostEvidence,
    KernelLine,
    Listener,
    Memory,
    ProcessFacts,
    RankEvidence,
)

__all__ = [
    "Collective",
    "Disk",
    "Fault",
    "Fingerprint",
    "Flight",
    "Group",
    "HostEvidence",
    "KernelLine",
    "Listener",
    "Memory",
    "ProcessFacts",
    "RankEvidence",
]
