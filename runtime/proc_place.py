"""What a proc is told at its start. Apart from other records: whatever may run in a proc looks for it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .codec import to_json

__all__ = ["PROC_VARIABLE", "ProcPlace", "decode_place", "encode_place"]

PROC_VARIABLE = "MILKWEED_PROC"


@dataclass(frozen=True, slots=True)
class ProcPlace:
    """What a proc is told at its start, in `PROC_VARIABLE`.

    `data_fd` and `control_fd` are listening sockets that it inherits; its own children are not to. `run` is
    that of its owner.
    """

    proc: str
    host_name: str
    host_socket: str
    mesh: str
    sys_path: tuple[str, ...]
    data_fd: int
    control_fd: int
    run: str = ""


def encode_place(place: ProcPlace) -> str:
    return json.dumps(to_json(place))


def decode_place(text: str) -> ProcPlace:
    """
    Raises:
        ValueError: the text is no place.
    """
    try:
        fields = json.loads(text)
        return ProcPlace(**{**fields, "sys_path": tuple(fields["sys_path"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"no place of a proc: {text[:80]!r}") from error
