"""What an owner grants, without a device: by a stand-in for UCX."""

from __future__ import annotations

import itertools
import mmap
from typing import Any, cast

import pytest

from milkweed.runtime.memory.grant import Grant
from milkweed.runtime.memory.granting import Grants
from milkweed.runtime.memory.handle import READ
from milkweed.runtime.memory.holding import hold
from milkweed.runtime.memory.regions import Region, Regions
from milkweed.runtime.memory.ucx import Ucx


class Engine:
    """Registers everything but what is as large as `refused`."""

    address = b"worker"
    memory_types = 1

    def __init__(self) -> None:
        self.mapped: set[int] = set()
        self.refused = -1
        self._numbers = itertools.count()

    def map(self, address: int, size: int, *_: Any) -> tuple[int, bytes]:
        if size == self.refused:
            raise RuntimeError("it cannot be registered")
        number = next(self._numbers)
        self.mapped.add(number)
        return number, b"key"

    def unmap(self, number: int) -> None:
        self.mapped.remove(number)


class StandIn:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def engine(self) -> Engine:
        return self._engine

    def listener(self) -> None:
        return None


class Owner:
    def __init__(self, engine: Engine) -> None:
        self.regions = Regions()
        self.grants = Grants(cast(Ucx, StandIn(engine)))
        self.lanes = self.grants.lanes()

    def made(self, size: int) -> Region:
        return self.regions.register(hold(bytearray(size)), READ)

    def granted(self, region: Region) -> Grant:
        grant = self.grants.grant(region, self.lanes)
        assert grant is not None
        return grant

    def drop(self, region: Region) -> None:
        self.regions.retire(region)
        assert self.regions.let_go(region)


def test_a_word_that_is_used_again_never_has_in_it_what_it_had() -> None:
    owner = Owner(Engine())
    first, second = owner.made(100), owner.made(100)
    assert first.generation == second.generation
    was = owner.granted(first)
    owner.drop(first)
    found = owner.granted(second)
    assert found.word == was.word
    assert found.alive != was.alive


def test_a_grant_tells_the_size_of_the_region() -> None:
    owner = Owner(Engine())
    assert owner.granted(owner.made(100)).size == 100


def test_what_cannot_be_granted_keeps_neither_a_registration_nor_a_word() -> None:
    engine = Engine()
    owner = Owner(engine)
    region = owner.made(100)
    held = set(engine.mapped)
    engine.refused = mmap.PAGESIZE  # of the words
    with pytest.raises(RuntimeError):
        owner.grants.grant(region, owner.lanes)
    assert engine.mapped == held
    engine.refused = -1
    kept = owner.granted(region)
    held = set(engine.mapped)
    engine.refused = 77
    bad = owner.made(77)
    for _ in range(600):  # a page has 512 words
        with pytest.raises(RuntimeError):
            owner.grants.grant(bad, owner.lanes)
    assert engine.mapped == held
    assert owner.granted(owner.made(10)).word_key == kept.word_key
