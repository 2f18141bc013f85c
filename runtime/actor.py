"""Actors: private state whose endpoints are called by message.

    class Trainer(Actor):
        def __init__(self, lr: float): ...
        @endpoint
        async def step(self, batch: Batch) -> float: ...
        @endpoint
        def save(self, path: str) -> None: ...
        def __supervise__(self, failure: Failure) -> bool: ...

Called on the instance an endpoint is an ordinary method. Only marked methods can be called by message. Async
endpoints run on their process's loop, sync ones on its main thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from .errors import InvalidArgument, NotFound

__all__ = ["Actor", "check_arguments", "endpoint", "endpoints_of", "forget_classes", "is_async"]

_MARK = "__milkweed_endpoint__"

EndpointT = TypeVar("EndpointT", bound=Callable[..., Any])


class Actor:
    """Base of everything that is called by message.

    A subclass that spawns meshes may define `__supervise__(failure) -> bool`: True when the failure of
    something it spawned is dealt with, False to hand it to whoever spawned this actor.
    """


def endpoint(method: EndpointT) -> EndpointT:
    """Marks a method, async or not, as callable by message."""
    setattr(method, _MARK, True)
    return method


@lru_cache(maxsize=256)
def _endpoints(cls: Any) -> frozenset[str]:
    names = {name for base in cls.__mro__ if base is not object for name in vars(base)}
    return frozenset(name for name in names if getattr(getattr(cls, name, None), _MARK, False))


def endpoints_of(actor: Actor | type[Actor]) -> frozenset[str]:
    """Names of the endpoints of an actor or of its class."""
    cls: Any = actor if isinstance(actor, type) else type(actor)
    return _endpoints(cls)


def is_async(cls: type[Actor], name: str) -> bool:
    """Whether an endpoint runs on the loop (else on the main thread)."""
    return inspect.iscoroutinefunction(getattr(cls, name))


forget_classes = _endpoints.cache_clear
"""Drops what is remembered of classes, which keeps them."""


@lru_cache(maxsize=1024)
def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature, int]:
    """The signature, and how many positional arguments always fit (-1: look closely)."""
    signature = inspect.signature(function)
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    simple = all(one.kind in plain and one.default is one.empty for one in signature.parameters.values())
    return signature, len(signature.parameters) if simple else -1


def check_arguments(cls: type, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuses, before anything is sent, a call that the method could not take. Of `__init__`: a construction.

    Raises:
        NotFound: endpoint_not_found. InvalidArgument: invalid_argument, with the signature.
    """
    function: Any = getattr(cls, name, None)
    if function is object.__init__:
        function = _no_init  # object's own claims to take anything
    if function is None or (name != "__init__" and not getattr(function, _MARK, False)):
        known = ", ".join(sorted(_endpoints(cls))) or "none"
        raise NotFound(
            "endpoint_not_found",
            f"{cls.__name__} has no endpoint {name!r}; endpoints: {known}",
            "Call one of those, or mark the method with @endpoint.",
        )
    signature, fits = _signature(function)
    if len(args) + 1 == fits and not kwargs:
        return
    try:
        signature.bind(None, *args, **kwargs)
    except TypeError as error:
        parameters = tuple(signature.parameters.values())[1:]
        shown = signature.replace(parameters=parameters, return_annotation=signature.empty)
        raise InvalidArgument(
            "invalid_argument",
            f"{cls.__name__}.{name}: {error}",
            f"Its signature is {name}{shown}.",
        ) from None


def _no_init(self: Actor) -> None: ...
