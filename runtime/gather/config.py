"""What the process of a gather mount is started with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

__all__ = ["MOUNT_NAME", "GatherConfig"]

MOUNT_NAME = "milkweed-gather"
"""What mounts of this kind begin their name with, in the kernel's list."""


@dataclass(frozen=True, slots=True)
class GatherConfig:
    """`hosts` are numbers with the addresses (`mounts.doors`) of agents; `remote` is what of each is shown,
    absolute or relative to its workspace. Attributes are believed for `life_s`.
    """

    module: ClassVar[str] = f"{__package__}.process"
    mend: ClassVar[str] = "Name another mountpoint, or mend what doctor says of mounts."

    mountpoint: str
    remote: str
    hosts: tuple[tuple[int, str], ...]
    name: str = ""
    life_s: float = 1.0
    one_sided: bool = True

    def at(self, mountpoint: str) -> GatherConfig:
        return replace(self, mountpoint=mountpoint)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> GatherConfig:
        values = json.loads(text)
        hosts = tuple((number, address) for number, address in values["hosts"])
        return cls(**{**values, "hosts": hosts})
