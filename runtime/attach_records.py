"""What a controller is told of its mesh, and what the mesh's keeper is told of the controller.

A controller is a program that spawns procs on the hosts of an allocated mesh. One that was started by
`run_controller` finds its `AttachPlace` in the variable MILKWEED_ATTACH.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from .codec import from_json, to_json

__all__ = [
    "ATTACH_VARIABLE",
    "AttachPlace",
    "AttachedHost",
    "Controller",
    "decode_attach_place",
    "encode_attach_place",
]

ATTACH_VARIABLE = "MILKWEED_ATTACH"


@dataclass(frozen=True, slots=True)
class AttachedHost:
    """A host of the mesh, by its agent's socket."""

    name: str
    socket: str


@dataclass(frozen=True, slots=True)
class AttachPlace:
    """A mesh as its controllers see it: its keeper's socket, and all its hosts in their order.

    `here` is the number of the host that the controller runs on, and `run` the run that it is; None and
    empty where it was not started by the mesh. `secret_file`: what its processes know, where this program
    does not know it already.
    """

    mesh: str
    keeper: str
    hosts: tuple[AttachedHost, ...]
    here: int | None = None
    run: str = ""
    secret_file: str = ""


@dataclass(frozen=True, slots=True)
class Controller:
    """A program that is attached to a mesh; `id` is its node's.

    `control` is the socket where it tells of itself, whatever it does, empty where it has none.
    """

    id: str
    pid: int
    run: str = ""
    control: str = ""


def encode_attach_place(place: AttachPlace) -> str:
    return json.dumps(to_json(place))


def decode_attach_place(text: str) -> AttachPlace:
    """
    Raises:
        ValueError: the text is no place.
    """
    try:
        return from_json(AttachPlace, json.loads(text))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no place of a controller: {text[:80]!r}") from error
