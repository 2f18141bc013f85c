"""Terminal output becomes the lines that a reader would see at the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.tools.verdicts import clean

TERMINAL = st.text(st.sampled_from("ab \n\r\b\x00\x1b[]0;31mK\x07\\\x9b\x7féÿ"), max_size=60)


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        (b"\x1b[31mred\x1b[0m\n", "red\n"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"  0%|   | 0/2\r 50%|#  | 1/2\r100%|###| 2/2\ndone\n", "100%|###| 2/2\ndone\n"),
        (b"\r 10%\r 20%\r\x1b[K", " 20%"),
        (b"100%|###|\r      \r\nnext", "100%|###|\nnext"),
        (b"dos\r\nlines\r\n", "dos\nlines\n"),
        (b"step 1\b2\b3", "step 3"),
        (b"a\bab\bb", "ab"),
        (b"\b\bx", "x"),
        (b"a\x00\x00b\x07\x0cc\td", "abc\td"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        (b"\x1b]never ended\nnext", "\nnext"),
        ("\ud800lone", "?lone"),
    ],
)
def test_what_only_a_terminal_understands_goes(raw: bytes | str, plain: str) -> None:
    assert clean(raw) == plain


@given(st.one_of(st.binary(), TERMINAL))
def test_cleaning_twice_is_cleaning_once(raw: bytes | str) -> None:
    once = clean(raw)
    assert clean(once) == once
    assert not set(once) & {"\r", "\b", "\x00", "\x1b"}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", [b"\x1b]", b"\x1b[", b"\x1bP", b"a\b", b"a\r", b"\x1b[3"])
def test_a_megabyte_of_the_worst_takes_linear_time(unit: bytes) -> None:
    clean(unit * (1024 * 1024 // len(unit)))
