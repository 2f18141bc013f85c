"""Names as they are shown, and read back."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.names import parse_name, printable, quoted


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"plain \xe2\x98\x83", "plain \u2603"),
        (b"back\\slash", "back\\slash"),
        (b"bad\xffname", "bad\\xffname"),
        (b"two\nlines", "two\\nlines"),
        (b"\x1b[31mred\\n", "\\x1b[31mred\\\\n"),
        (b"\xc2\x9bc1", "\\xc2\\x9bc1"),
    ],
)
def test_a_name_is_shown_without_what_cannot_be_printed(name: bytes, shown: str) -> None:
    assert printable(os.fsdecode(name)) == shown


@given(st.binary().map(os.fsdecode))
def test_a_name_that_was_shown_with_escapes_can_be_given_back(name: str) -> None:
    shown = printable(name)
    assert shown.isprintable() or not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown)
    assert shown == name or parse_name(shown) == name


def test_what_a_caller_gave_is_quoted_briefly() -> None:
    assert quoted("x" * 200_000) == "x" * 117 + "..."
    assert quoted("\ud800") == "\\xed\\xa0\\x80"
    assert quoted("x" * 120) == "x" * 120
