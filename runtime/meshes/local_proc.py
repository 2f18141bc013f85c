"""The process that runs this code, as a place for actors."""

from __future__ import annotations

from secrets import token_hex
from typing import Any

from ..actor import Actor, check_arguments, endpoints_of, is_async
from ..addresses import ProcAddress
from ..extent import Extent
from ..node import Future, node
from ..pickling import Pickled, dumps
from ..proc.serving import Serving
from ..region import Region
from .actor_mesh import ActorMesh, check_actor_class
from .spawned_actors import create

__all__ = ["LocalProc", "this_proc"]

_REGION = Region.of(Extent())


class LocalProc:
    """See `this_proc`. Its actors live as long as the process."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    @property
    def address(self) -> ProcAddress:
        return self._serving.address

    def spawn(self, name: str, cls: type[Actor], /, *args: Any, **kwargs: Any) -> Future[ActorMesh]:
        """One actor in this process, as a mesh of one without a dimension.

        Raises:
            InvalidArgument: as `ProcMesh.spawn`. ActorError: `__init__` raised.
        """
        check_actor_class(cls)
        check_arguments(cls, "__init__", args, kwargs)
        return node().start(self._spawn(name, cls, dumps((cls, args, kwargs))))

    async def _spawn(self, name: str, cls: type[Actor], pickled: Pickled) -> ActorMesh:
        actor_id = f"{name}-{token_hex(4)}"
        on_loop = all(is_async(cls, endpoint) for endpoint in endpoints_of(cls))
        body, buffers = pickled
        connection = node().connection(self.address.socket, f"proc {self.address.proc}")
        # Arrays are copied: the actor's are its own though the caller shares its process.
        copies = [bytearray(buffer) for buffer in buffers]
        await create(connection, actor_id, name, _REGION.point(0), on_loop, body, copies)
        return ActorMesh(name, actor_id, cls, _REGION, (self.address,))


def this_proc() -> LocalProc:
    """This process: a proc, or a program, which then listens on sockets of its own.

    Async endpoints of what is spawned here run on the node's thread; sync ones on the main thread of a proc,
    in a program on a thread made for that.
    """
    return LocalProc(node().part(Serving, Serving.in_program))
