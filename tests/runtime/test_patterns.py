"""Regular expressions from outside cost a bounded time, whatever they say."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from milkweed.runtime.errors import InvalidArgument
from milkweed.runtime.patterns import compile_pattern

USUAL = (
    "loss.*nan",
    r"^\[rank\d+\]: .*Error",
    "(?i)error|nan|inf",
    r"(?:\d{1,3}\.){3}\d{1,3}",
    "(?:error|warn|fail).*rank",
    "colou?r",
    "(foo|bar)+",
    r"(?:\d++\.)+",
    r"(\w+)\s\1",
)
ENDLESS = (
    "(a+)+b",
    "(a|aa)+b",
    "(a?a)+b",
    "(?:a?){30}a{30}",
    r"(x+)\1*",
    "(.*)*",
    "((ab?)*c?)*d",
    "a*a*a*a*b",
)


@pytest.mark.parametrize("pattern", USUAL)
def test_usual_patterns_are_taken(pattern: str) -> None:
    compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ENDLESS)
def test_patterns_that_may_take_for_ever_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        compile_pattern(pattern)
    assert caught.value.code == "invalid_argument"
    assert caught.value.next_step


@pytest.mark.parametrize("pattern", ["[", "(?P<a", "*", "a{99999999999}", "(" * 5000, "\\"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", [*USUAL, "(.*)(.*)(.*)x", "a*a*a*b", "a.*a.*b"])
def test_a_deadline_holds_on_a_line_made_to_be_slow(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    started = time.monotonic()
    with suppress(InvalidArgument):
        compiled.search("a" * 1_000_000, started + 0.2)
    assert time.monotonic() - started < 10


def test_long_lines_are_searched_in_their_head() -> None:
    compiled = compile_pattern("a.*b.*c")
    assert compiled.search("x" * 1000 + "a" + "x" * 1000 + "b" + "x" * 1000 + "c")
    assert not compiled.search("a" * 500)
    assert compiled.search("abc")
