"""What a mount process is started with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["HostConfig"]


@dataclass(frozen=True, slots=True)
class HostConfig:
    """`source` is the socket of a `Feed`; `parents` are those of hosts that are asked for bytes first;
    `serve` is where this host offers its own to others, empty for nowhere. Sizes are bytes.
    """

    mountpoint: str
    source: str
    follower: str
    cache: str
    cache_bytes: int = 10 * 1024**3
    parents: tuple[str, ...] = ()
    serve: str = ""
    name: str = "milkweed"
    allow_other: bool = False
    patience_s: float = 60.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> HostConfig:
        values = json.loads(text)
        return cls(**{**values, "parents": tuple(values["parents"])})
