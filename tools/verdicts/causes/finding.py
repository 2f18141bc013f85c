"""What a rule finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Kind"]

Kind = Literal[
    "missing_module",
    "nan_loss",
    "left_early",
    "collective_mismatch",
    "out_of_memory",
    "straggler",
    "environment_drift",
    "exception",
    "shape_mismatch",
    "waiting_in_python",
    "stuck_in_c",
    "gil_held",
    "worker_killed",
    "device_memory",
    "device_fault",
    "shm_full",
    "segfault",
    "abort_at_exit",
    "loss_not_falling",
    "replicas_diverge",
    "port_in_use",
    "wrong_master",
    "world_size_mismatch",
    "missing_rank",
    "disk_full",
    "timeout_order",
    "stopped",
    "left_children",
    "killed",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One possible cause. `certainty` is 0-100: 90 where the evidence names it, 50 where it only fits.

    `summary` is one sentence with the ranks in it; `evidence` are short lines, the strongest first; `next` is
    the step that mends it, or that tells more.
    """

    kind: Kind
    certainty: int
    summary: str
    ranks: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    next: str = ""
