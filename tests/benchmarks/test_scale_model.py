"""The model of many hosts: its page is that of its constants, and it says what the tree is for."""

from __future__ import annotations

import json

import pytest

from benchmarks.scale.__main__ import CONSTANTS, PAGE, with_tables
from benchmarks.scale.model import Constants, Cost, Size, costs, holdings, shape_of


@pytest.fixture(scope="module")
def constants() -> Constants:
    return Constants(**json.loads(CONSTANTS.read_text())["constants"])


def cost(constants: Constants, size: Size, what: str) -> Cost:
    return next(one for one in costs(constants, size) if one.what == what)


def test_the_page_has_the_tables_of_the_constants_that_were_measured() -> None:
    assert with_tables(PAGE.read_text(), CONSTANTS.read_text()) == PAGE.read_text()


def test_a_caller_sends_as_many_messages_to_a_thousand_hosts_as_to_ten(constants: Constants) -> None:
    few, many = Size(10, 8), Size(1000, 8)
    for what in ("call, over the tree", "broadcast"):
        assert cost(constants, few, what).messages == cost(constants, many, what).messages == 16
    assert cost(constants, many, "call, direct").messages == 16_000


def test_a_relay_holds_the_same_however_many_hosts_there_are(constants: Constants) -> None:
    relay = {one.who: one for one in holdings(constants, Size(1000, 8))}["widest relay"]
    assert relay.connections == 8 + 8 + 1
    assert shape_of(Size(1000, 8)).depth == 4
