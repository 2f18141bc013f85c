"""What a mount process is started with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

__all__ = ["HostConfig"]


@dataclass(frozen=True, slots=True)
class HostConfig:
    """`source` is where a `Feed` is; `parents` are hosts that are asked for bytes first; `serve` is where
    this host offers its own to others, empty for nowhere: all are addresses of `doors`. Sizes are bytes.
    Without `one_sided` all bytes come in messages. What programs write lies in the directory `overlay`;
    without one they cannot.
    """

    module: ClassVar[str] = f"{__package__}.host"
    mend: ClassVar[str] = "Take workspace_mode='copy', or mend what doctor says of mounts."

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
    one_sided: bool = True
    overlay: str = ""

    def at(self, mountpoint: str) -> HostConfig:
        return replace(self, mountpoint=mountpoint)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> HostConfig:
        values = json.loads(text)
        return cls(**{**values, "parents": tuple(values["parents"])})
