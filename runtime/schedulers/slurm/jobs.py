"""What Slurm says of one job, and of a queue: `scontrol show job`, plain or JSON, and `squeue`. Pure.

The plain format is that of every version that we know. JSON is what `squeue` has since 21.08 and `scontrol`
since 23.02. Tests have real answers of 22.05; the shapes of 23.02 and later, where numbers are
`{"set", "infinite", "number"}` and states are lists, are from their documentation.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .nodelist import expand

__all__ = ["Job", "JobFormatError", "Place", "jobs_from_json", "jobs_from_plain", "place_in_queue"]

# A key begins after a blank; values may hold blanks (`Reason`, `Command`), and `=`.
_FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z0-9_/:]*)=")
_NONE = ("", "(null)", "None", "N/A", "Unknown")


class JobFormatError(ValueError):
    """What Slurm printed is in no format that is known here."""


@dataclass(frozen=True, slots=True)
class Job:
    """`states`: the base state, then flags such as COMPLETING. `start_at`: when it began, or may begin.

    `exit_code` and `exit_signal` are the batch script's. `priority` orders a queue.
    """

    job: int
    name: str = ""
    states: tuple[str, ...] = ()
    reason: str = ""
    nodes: tuple[str, ...] = ()
    restarts: int = 0
    start_at: float | None = None
    end_at: float | None = None
    exit_code: int = 0
    exit_signal: int = 0
    partition: str = ""
    priority: int = 0
    user: str = ""

    @property
    def state(self) -> str:
        return self.states[0] if self.states else ""


@dataclass(frozen=True, slots=True)
class Place:
    """A job's place among those of its partition that wait; 0 where it is not known."""

    position: int = 0
    waiting: int = 0


def jobs_from_plain(text: str) -> tuple[Job, ...]:
    """From `scontrol show job`, one line a job (`-o`) or not.

    Raises:
        JobFormatError: it is something else.
    """
    blocks = re.split(r"\n\s*\n|\n(?=JobId=)", text.strip())
    return tuple(_from_fields(_fields(block)) for block in blocks if block.strip())


def _fields(block: str) -> dict[str, str]:
    found = list(_FIELD.finditer(block))
    ends = [match.start() for match in found[1:]] + [len(block)]
    pairs = [(match[1], block[match.end() : end].strip()) for match, end in zip(found, ends, strict=False)]
    return dict(reversed(pairs))  # the first of a name counts: a command may look like more of them


def _from_fields(fields: Mapping[str, str]) -> Job:
    try:
        job = int(fields["JobId"])
        state = fields["JobState"]
        code, _, signal = fields.get("ExitCode", "0:0").partition(":")
        return Job(
            job=job,
            name=fields.get("JobName", ""),
            states=tuple(state.split()[0].split("+")) if state else (),
            reason=_word(fields.get("Reason", "")),
            nodes=expand(fields.get("NodeList", "").split(" ")[0]),
            restarts=int(fields.get("Restarts", "0")),
            start_at=_time(fields.get("StartTime", "")),
            end_at=_time(fields.get("EndTime", "")),
            exit_code=int(code or 0),
            exit_signal=int(signal or 0),
            partition=_word(fields.get("Partition", "")),
            priority=int(fields.get("Priority", "0")),
            user=fields.get("UserId", "").partition("(")[0],
        )
    except (KeyError, ValueError) as error:
        raise JobFormatError(f"no job in Slurm's answer ({error!r})") from error


def _word(text: str) -> str:
    return "" if text in _NONE else text


def _time(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def jobs_from_json(document: Any) -> tuple[Job, ...]:
    """From `squeue --json` or `scontrol show job --json`, of 22.05 and (as documented) 23.02 and later.

    Raises:
        JobFormatError: it is something else.
    """
    try:
        return tuple(_from_object(one) for one in document["jobs"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JobFormatError(f"no jobs in Slurm's answer ({error!r})") from error


def _from_object(one: Mapping[str, Any]) -> Job:
    state = one["job_state"]
    code, signal = _exit(one.get("exit_code"))
    return Job(
        job=int(one["job_id"]),
        name=one.get("name") or "",
        states=tuple(state) if isinstance(state, list) else tuple(str(state).split("+")),
        reason=_word(one.get("state_reason") or ""),
        nodes=expand(one.get("nodes") or ""),
        restarts=int(_number(one.get("restart_cnt")) or 0),
        start_at=_number(one.get("start_time")) or None,
        end_at=_number(one.get("end_time")) or None,
        exit_code=code,
        exit_signal=signal,
        partition=one.get("partition") or "",
        priority=int(_number(one.get("priority")) or 0),
        user=one.get("user_name") or "",
    )


def _number(value: Any) -> float | None:
    """A number, or one with whether it is set."""
    if isinstance(value, Mapping):
        return float(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else float(value)


def _exit(value: Any) -> tuple[int, int]:
    """Exit code and signal, of a wait status (22.05) or of an object."""
    if isinstance(value, Mapping) and ("return_code" in value or "signal" in value):
        signal = value.get("signal") or {}
        number = signal.get("id", signal.get("signal_id")) if isinstance(signal, Mapping) else 0
        return int(_number(value.get("return_code")) or 0), int(_number(number) or 0)
    status = int(_number(value) or 0)
    return status >> 8 & 0xFF, status & 0x7F


def place_in_queue(job: Job, queue: tuple[Job, ...]) -> Place:
    """Where a waiting job is among those that wait in its partition, the first in order first."""
    waiting = [one for one in queue if one.state == "PENDING" and one.partition == job.partition]
    ahead = [one for one in waiting if (-one.priority, one.job) < (-job.priority, job.job)]
    if all(one.job != job.job for one in waiting):
        return Place()
    return Place(len(ahead) + 1, len(waiting))
