"""What a cluster offers, and where its nodes are: `sinfo` and `scontrol show node`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = [
    "PARTITION_FORMAT",
    "Node",
    "Partition",
    "elsewhere",
    "nodes_from_plain",
    "partitions_from_plain",
    "seconds_of",
]

PARTITION_FORMAT = "%P|%a|%l|%F|%G|%c|%m|%f"


@dataclass(frozen=True, slots=True)
class Partition:
    """`limit_s` is None where there is no limit. Counts are of nodes."""

    name: str
    default: bool
    up: bool
    limit_s: float | None
    idle: int
    total: int
    gres: str
    cpus: str
    memory_mb: str
    features: str


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    address: str
    hostname: str
    partitions: tuple[str, ...] = ()


def partitions_from_plain(text: str) -> tuple[Partition, ...]:
    """From `sinfo -h -o PARTITION_FORMAT`: one a line, several lines where a partition's nodes differ."""
    found = []
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) != len(PARTITION_FORMAT.split("|")):
            continue
        name, state, limit, counts, gres, cpus, memory, features = fields
        numbers = [int(one) if one.isdigit() else 0 for one in counts.split("/")]
        found.append(
            Partition(
                name=name.rstrip("*"),
                default=name.endswith("*"),
                up=state == "up",
                limit_s=seconds_of(limit),
                idle=numbers[1] if len(numbers) == 4 else 0,
                total=numbers[-1],
                gres="" if gres == "(null)" else gres,
                cpus=cpus,
                memory_mb=memory,
                features="" if features == "(null)" else features,
            )
        )
    return tuple(found)


def seconds_of(text: str) -> float | None:
    """Of `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours[:minutes[:seconds]]`; None for
    `infinite` and what is none of them.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if match is None:
        return None
    days, first, second, third = (int(part) if part else None for part in match.groups())
    if days is not None or third is not None:
        hours, minutes, seconds = first, second, third
    else:
        hours, minutes, seconds = 0, first, second
    return float((days or 0) * 86400 + (hours or 0) * 3600 + (minutes or 0) * 60 + (seconds or 0))


def nodes_from_plain(text: str) -> tuple[Node, ...]:
    """From `scontrol show node -o`."""
    found = []
    for line in text.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        if "NodeName" in fields:
            name = fields["NodeName"]
            partitions = tuple(filter(None, fields.get("Partitions", "").split(",")))
            found.append(
                Node(name, fields.get("NodeAddr", name), fields.get("NodeHostName", name), partitions)
            )
    return tuple(found)


def elsewhere(nodes: Iterable[Node], is_own: Callable[[str], bool]) -> str:
    """Which nodes are other machines, in words; empty where none is. `is_own`: whether we have an address."""
    others = [node.name for node in nodes if not is_own(node.address)]
    if not others:
        return ""
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return (
        f"{', '.join(others[:3])}{more} are other machines"
        if len(others) > 1
        else f"{others[0]} is another machine"
    )
