"""What forked processes look at and allocate, brought together on few pages.

To run a function is to count references in it and in its code, which copies their pages; and what a process
allocates goes into the holes that others left, one on this page and one on that.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
import threading
import types
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["codes_of", "fill_holes", "gather", "watched"]

# Of CPython's allocator for up to 512 bytes; where there is another one, less is filled.
_POOL, _POOL_HEADER, _STEP, _LARGEST = 16 * 1024, 48, 16, 512
_MOST_BLOCKS = 8192
_MALLOC_SIZES = (*range(65528, 8192, -4096), *range(4088, 1040, -256), *range(1032, 16, -16))
_MALLOC_HEADER = 8
_CONSECUTIVE = 3
_ATTRIBUTES = (
    *("__qualname__", "__module__", "__doc__", "__kwdefaults__", "__annotations__"),
    "__type_params__",  # from Python 3.12
)
_kept: list[object] = []


@contextmanager
def watched() -> Iterator[set[types.CodeType]]:
    """The code that runs in the block, in this thread and in those that are started meanwhile."""
    seen: set[types.CodeType] = set()

    def note(frame: types.FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def codes_of(module: types.ModuleType) -> set[types.CodeType]:
    """That of the functions that a module defines, and of its classes' methods."""
    own = [one for one in vars(module).values() if getattr(one, "__module__", "") == module.__name__]
    own += [method for one in own if isinstance(one, type) for method in vars(one).values()]
    return {one.__code__ for one in own if isinstance(one, types.FunctionType)}


def gather(codes: Iterable[types.CodeType]) -> None:
    """Makes the code again, and the functions that run it, one behind the other.

    It is equal to what it was. A function is made again only where its name leads to all that refers to it.
    """
    wanted = {id(code): code for code in codes}
    files = {code.co_filename for code in wanted.values()}
    functions = [one for one in gc.get_objects() if _is_from(one, files)]
    moved = _Moved()
    for function in functions:
        if any(id(code) in wanted for code in _with_inner(function.__code__)):
            moved.move(function.__code__)
    for function in functions:
        if moved.new(function.__code__) is not function.__code__:
            function.__code__ = moved.new(function.__code__)
    for module in tuple(sys.modules.values()):
        for name, value in tuple(getattr(module, "__dict__", {}).items()):
            if type(value) is types.CodeType:
                vars(module)[name] = moved.new(value)
    hot = {id(moved.new(code)) for code in wanted.values()}
    names = {(one.__module__, one.__qualname__) for one in functions if id(one.__code__) in hot}
    del functions, function
    for module_name, qualified in names:
        _move_function(module_name, qualified)


def _is_from(one: object, files: set[str]) -> bool:
    return type(one) is types.FunctionType and one.__code__.co_filename in files


class _Moved:
    """Codes that were made again."""

    def __init__(self) -> None:
        self._pairs: dict[int, tuple[types.CodeType, types.CodeType]] = {}

    def new(self, code: types.CodeType) -> types.CodeType:
        return self._pairs.get(id(code), (code, code))[1]

    def move(self, code: types.CodeType) -> types.CodeType:
        """With the code within it."""
        if id(code) not in self._pairs:
            constants = tuple(
                self.move(one) if type(one) is types.CodeType else one for one in code.co_consts
            )
            self._pairs[id(code)] = (code, code.replace(co_consts=constants))
        return self._pairs[id(code)][1]


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for one in code.co_consts:
        if type(one) is types.CodeType:
            yield from _with_inner(one)


def _move_function(module: str, qualified: str) -> None:
    outer, _, name = qualified.rpartition(".")
    owner: Any = sys.modules.get(module)
    for step in outer.split(".") if outer else ():
        owner = getattr(owner, "__dict__", {}).get(step)
    function = getattr(owner, "__dict__", {}).get(name)
    # The owner's reference, and those of our name and of the argument.
    if type(function) is not types.FunctionType or sys.getrefcount(function) != 3:
        return
    if weakref.getweakrefcount(function):
        return
    if isinstance(owner, type):
        type.__setattr__(owner, name, _made_again(function))
    else:
        vars(owner)[name] = _made_again(function)


def _made_again(one: types.FunctionType) -> types.FunctionType:
    again = types.FunctionType(one.__code__, one.__globals__, one.__name__, one.__defaults__, one.__closure__)
    for name in _ATTRIBUTES:
        if hasattr(one, name):
            setattr(again, name, getattr(one, name))
    again.__dict__.update(one.__dict__)
    return again


def fill_holes() -> None:
    """Takes what is free between what is in use, for good: some megabytes, which forked processes share.

    What is freed after this leaves holes again.
    """
    _fill_pools()
    _fill_malloc()


def _fill_pools() -> None:
    """Until a pool of each size has been filled from its first block to its last."""
    empty = sys.getsizeof(b"")
    # Numbers would come and go in this one while they are compared.
    batch = (_POOL - _POOL_HEADER) // (2 * _STEP)
    for _ in range(_MOST_BLOCKS // batch):
        blocks = [*map(float, itertools.repeat(0, batch))]
        _kept.append(blocks)
        addresses = list(map(id, blocks))
        if sum(after - before == 2 * _STEP for before, after in itertools.pairwise(addresses)) > batch // 2:
            break
    for size in (_STEP, *range(3 * _STEP, _LARGEST + 1, _STEP)):
        capacity = (_POOL - _POOL_HEADER) // size
        consecutive = last = 0
        for _ in range(_MOST_BLOCKS):
            block = object() if size == _STEP else bytes(size - empty)
            _kept.append(block)
            consecutive = consecutive + 1 if id(block) == last + size else 0
            last = id(block)
            if consecutive >= (last % _POOL - _POOL_HEADER) // size == capacity - 1:
                break


def _fill_malloc() -> None:
    """Until the C library takes blocks of each size from the end of its heap, one behind the other."""
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_size_t, (ctypes.c_size_t,)
    for size in _MALLOC_SIZES:
        consecutive = last = 0
        for _ in range(_MOST_BLOCKS // 2):
            at = malloc(size)
            consecutive = consecutive + 1 if at == last + size + _MALLOC_HEADER else 0
            last = at
            if consecutive == _CONSECUTIVE:
                break
