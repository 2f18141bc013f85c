"""Regular expressions from outside cost a bounded time, whatever they say."""

from __future__ import annotations

import pytest

from milkweed.runtime.errors import InvalidArgument
from milkweed.runtime.patterns import compile_pattern


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("loss.*nan", "step 3 loss nan"),
        (r"^\[rank\d+\]: .*Error", "[rank3]: ValueError"),
        ("(?i)error|nan|inf", "an ERROR"),
        (r"(?:\d{1,3}\.){3}\d{1,3}", "at 10.0.0.1:99"),
        ("größer", "viel größer"),
        ("x$", "bytes that are no text: \udce9x"),
        ("", "anything"),
    ],
)
def test_usual_patterns_are_found(pattern: str, line: str) -> None:
    assert compile_pattern(pattern).search(line)


def test_what_is_not_there_is_not_found() -> None:
    assert not compile_pattern("^step [0-9]+$").search("step one")


@pytest.mark.parametrize(
    "pattern", ["[", "(?P<a", "*", "a{1001}", "(" * 5000, "\\", r"(\w+)\1", "(?=x)", "((a{100}){100}){100}"]
)
def test_what_is_no_pattern_or_cannot_be_bounded_is_refused_with_a_mend(pattern: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        compile_pattern(pattern)
    assert caught.value.code == "invalid_argument"


SLOW = ("(a+)+b", "(a|aa)+b", "(?:a?){30}a{30}b", "(.*)*x", "((ab?)*c?)*d", "a.*a.*a.*b")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", SLOW)
def test_patterns_made_to_be_slow_are_not(pattern: str) -> None:
    assert not compile_pattern(pattern).search("a" * 1_000_000)
