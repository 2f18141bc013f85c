"""Pages of output: bounded, in whole lines, and with nothing lost or shown twice from page to page."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milkweed.runtime.records import OutputSlice
from milkweed.tools.reading import last_lines, page_forward, page_tail, text_of, whole_lines


def piece(
    data: bytes, *, rank: int = 0, start: int = 0, size: int | None = None, ended: bool = True
) -> OutputSlice:
    end = start + len(data)
    return OutputSlice(rank, start, data, end, end if size is None else size, ended)


def test_short_output_is_one_page() -> None:
    page = page_forward([piece(b"a\nb\n")], {}, 1000, "hint")
    assert (page.text, page.offsets, page.more) == ("a\nb", {0: 4}, False)


def test_ranks_that_wrote_the_same_are_shown_once() -> None:
    page = page_forward([piece(b"same\n", rank=rank) for rank in range(512)], {}, 1000, "hint")
    assert page.text == "ranks 0-511:\nsame"


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=5), st.integers(300, 2000))
@settings(deadline=None)
def test_pages_cover_the_output_in_order(outputs: list[bytes], max_bytes: int) -> None:
    offsets = dict.fromkeys(range(len(outputs)), 0)
    read = dict.fromkeys(offsets, b"")
    for _ in range(1000):
        slices = [
            piece(data[offsets[rank] :], rank=rank, start=offsets[rank]) for rank, data in enumerate(outputs)
        ]
        page = page_forward(slices, offsets, max_bytes, "hint")
        assert len(page.text.encode()) <= max_bytes
        for rank, following in page.offsets.items():
            read[rank] += outputs[rank][offsets[rank] : following]
        if page.offsets == offsets:
            break
        offsets = dict(page.offsets)
    assert list(read.values()) == outputs


def test_a_page_that_is_cut_ends_with_a_whole_line() -> None:
    data = b"".join(b"line %04d\n" % number for number in range(1000))
    page = page_forward([piece(data)], {}, 500, "hint")
    assert page.more
    assert page.text.endswith(f"line {page.offsets[0] // 10 - 1:04}")


def test_a_tail_keeps_the_end_and_says_what_is_before() -> None:
    data = b"".join(b"line %04d\n" % number for number in range(1000))
    page = page_tail([piece(data, start=5000)], 500, "hint")
    assert page.text.endswith("line 0999")
    assert page.text.startswith("line ")
    assert page.earlier > 5000
    assert page.offsets == {0: 15_000}


@pytest.mark.parametrize(
    ("data", "count", "expected"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\n", 5, b"a\n"),
        (b"", 1, b""),
        (b"\n\n\n", 2, b"\n\n"),
        (b"x" * 100, 1, b"x" * 100),
    ],
)
def test_the_last_lines_of_a_slice(data: bytes, count: int, expected: bytes) -> None:
    (found,) = last_lines([piece(data, start=7)], count)
    assert found.data == expected
    assert found.start == 7 + len(data) - len(expected)
    assert found.next == 7 + len(data)


@pytest.mark.parametrize(
    ("data", "ended", "expected"),
    [(b"a\nhalf", False, b"a\n"), (b"a\nhalf", True, b"a\nhalf"), (b"half", False, b"half")],
)
def test_a_half_line_waits_for_its_other_half(data: bytes, ended: bool, expected: bytes) -> None:
    assert whole_lines(piece(data, ended=ended)).data == expected


def test_what_fell_out_behind_a_slice_is_said() -> None:
    gap = OutputSlice(0, 0, b"head\n", 1000, 2000, True, gap_start=5, gap_end=1000, gap_lines=99)
    assert "995 bytes, 99 lines fell out" in text_of(gap).splitlines()[1]


def test_what_fell_out_under_a_cursor_is_said() -> None:
    late = OutputSlice(0, 1000, b"tail\n", 1005, 1005, True, gap_start=5, gap_end=1000, gap_lines=99)
    assert "fell out" in text_of(late, asked=500).splitlines()[0]
    assert "fell out" not in text_of(late, asked=1000)


def test_a_page_cut_before_a_gap_goes_on_before_it() -> None:
    data = b"".join(b"line %04d\n" % number for number in range(1000))
    capped = OutputSlice(0, 0, data, 99_999, 200_000, True, gap_start=10_000, gap_end=99_999, gap_lines=5)
    page = page_forward([capped], {0: 0}, 500, "hint")
    assert page.offsets[0] < 10_000
    assert "fell out" not in page.text
