"""What is moved is what it was; what is allocated after the holes were filled lies together."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from types import CodeType, ModuleType

import pytest

from milkweed.runtime.agent.forked.gathering import codes_of, fill_holes, gather, watched

SOURCE = """
def plain(a, b=2, *, c=3):
    "Adds."
    return a + b + c + sum(one for one in (a, b))
plain.mark = True

def aliased():
    return 1
also = [aliased]

def counter():
    count = 0
    def more():
        nonlocal count
        count += 1
        return count
    return more
running = counter()

class Thing:
    def method(self) -> "int":
        return super().__hash__() and 5
    @staticmethod
    def static():
        return 6
    @property
    def value(self):
        return 7

CODE = plain.__code__
"""


ATTRIBUTES = ("__qualname__", "__module__", "__doc__", "__defaults__", "__kwdefaults__", "__dict__")


@pytest.fixture
def module() -> Iterator[ModuleType]:
    made = ModuleType("gathered_example")
    sys.modules[made.__name__] = made
    exec(compile(SOURCE, "gathered_example.py", "exec", dont_inherit=True), made.__dict__)
    yield made
    del sys.modules[made.__name__]


def test_what_is_moved_is_elsewhere_and_equal(module: ModuleType) -> None:
    address, code = id(module.plain), module.plain.__code__
    before = [getattr(module.plain, name) for name in ATTRIBUTES]
    gather(codes_of(module))
    plain = module.plain
    assert id(plain) != address
    assert plain.__code__ is not code
    assert plain.__code__ == code
    assert plain.__code__ is module.CODE
    assert [getattr(plain, name) for name in ATTRIBUTES] == before
    assert (plain(1), plain(1, 1, c=1)) == (9, 5)


def test_it_does_what_it_did(module: ModuleType) -> None:
    assert module.running() == 1
    gather(codes_of(module))
    thing = module.Thing()
    assert (thing.method(), thing.static(), thing.value) == (5, 6, 7)
    assert module.Thing.method.__annotations__ == {"return": "int"}
    assert module.running() == 2
    assert module.counter()() == 1


def test_a_function_that_somebody_else_holds_stays_what_it_is(module: ModuleType) -> None:
    before = module.aliased
    gather(codes_of(module))
    assert module.aliased is before is module.also[0]


def test_the_code_that_runs_is_seen_in_all_threads_and_only_then(module: ModuleType) -> None:
    with watched() as codes:
        module.Thing().method()
        thread = threading.Thread(target=module.running)
        thread.start()
        thread.join()
    module.plain(1)
    names = {code.co_name for code in codes if code.co_filename == "gathered_example.py"}
    assert names == {"method", "more"}
    assert sys.getprofile() is None


def test_codes_of_a_module_are_those_of_its_own_functions(module: ModuleType) -> None:
    module.foreign = fill_holes  # type: ignore[attr-defined]
    names = {code.co_name for code in codes_of(module) if isinstance(code, CodeType)}
    assert names == {"plain", "aliased", "counter", "more", "method"}


def test_after_holes_were_filled_new_objects_lie_one_behind_the_other() -> None:
    size = 208
    holes = [bytes(size - sys.getsizeof(b"")) for _ in range(3000)]
    del holes[::2]
    fill_holes()
    fresh = [bytes(size - sys.getsizeof(b"")) for _ in range(60)]
    assert all(after - before == size for before, after in pairwise(map(id, fresh)))
