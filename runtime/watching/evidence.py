"""What is kept on disk of a run that stands still, on each of its hosts: `still.json` in its directory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..codec import from_json, to_json
from ..records import ProcessStacks
from .machine import Sample

__all__ = ["StillEvidence", "read_evidence", "still_file", "write_evidence"]


@dataclass(frozen=True, slots=True)
class StillEvidence:
    """`at` and `since` are wall clock.

    `cores` is the CPU that a rank has used lately, where that is known; `sequences` how many collectives
    each had begun.
    """

    run: str
    at: float
    since: float
    stacks: tuple[ProcessStacks, ...] = ()
    samples: tuple[Sample, ...] = ()
    cores: Mapping[int, float] = field(default_factory=dict)
    sequences: Mapping[int, int] = field(default_factory=dict)


def still_file(run_directory: Path) -> Path:
    return run_directory / "still.json"


def write_evidence(run_directory: Path, evidence: StillEvidence) -> bool:
    """Replaces what is there at once; False where it could not be written, and nothing has changed."""
    path = still_file(run_directory)
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("w") as file:
            json.dump(to_json(evidence), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        return False
    return True


def read_evidence(run_directory: Path) -> StillEvidence | None:
    """None where there is none, or none that can be read."""
    try:
        return from_json(StillEvidence, json.loads(still_file(run_directory).read_text()))
    except (OSError, ValueError, TypeError, KeyError):
        return None
