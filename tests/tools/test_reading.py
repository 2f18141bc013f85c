"""Pages of output: bounded, in whole lines, and with nothing lost or shown twice from page to page."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from milkweed.runtime.records import OutputSlice
from milkweed.tools.reading import Page, page_forward, page_tail, text_of, whole_lines
from milkweed.tools.verdicts import clean


def piece(
    data: bytes, *, rank: int = 0, start: int = 0, size: int | None = None, ended: bool = True
) -> OutputSlice:
    end = start + len(data)
    return OutputSlice(rank, start, data, end, end if size is None else size, ended)


def test_short_output_is_one_page() -> None:
    page = page_forward([piece(b"a\nb\n")], {}, 1000)
    assert (page.text, page.offsets, page.more) == ("a\nb", {0: 4}, False)


def test_ranks_that_wrote_the_same_are_shown_once() -> None:
    page = page_forward([piece(b"same\n", rank=rank) for rank in range(512)], {}, 1000)
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
        page = page_forward(slices, offsets, max_bytes)
        assert len(page.text.encode()) <= max_bytes
        for rank, following in page.offsets.items():
            read[rank] += outputs[rank][offsets[rank] : following]
        if page.offsets == offsets:
            break
        offsets = dict(page.offsets)
    assert list(read.values()) == outputs


def test_a_page_that_is_cut_ends_with_a_whole_line() -> None:
    data = b"".join(b"line %04d\n" % number for number in range(1000))
    page = page_forward([piece(data)], {}, 500)
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
        (b"a\nb\nc\n", 2, "b\nc"),
        (b"a\nb\nc", 2, "b\nc"),
        (b"a\n", 5, "a"),
        (b"", 1, ""),
        (b"\n\n\n", 2, "\n"),
        (b"x" * 100, 1, "x" * 100),
    ],
)
def test_the_last_lines_of_an_output(data: bytes, count: int, expected: str) -> None:
    assert page_tail([piece(data)], 1000, "hint", lines=count).text == expected


def test_a_tail_that_begins_inside_a_line_says_so() -> None:
    assert page_tail([piece(b"of a line\nwhole\n", start=7)], 500, "hint").text == "whole"
    assert page_tail([piece(b"of a line\n", start=7)], 500, "hint").text == "[... line cut ...] of a line"
    assert page_tail([piece(b"of a line\n", start=7)], 500, "", lines=3).text.startswith("[... line cut ...]")
    long = page_tail([piece("\u2603".encode() * 9000)], 300, "hint").text
    assert long.startswith("[... line cut ...] \u2603")
    assert "\ufffd" not in long
    assert "cut" not in page_tail([piece(b"first\nlast\n")], 500, "hint", lines=1).text


def test_what_happened_to_an_output_is_noted_once_for_all_ranks() -> None:
    gone = [OutputSlice(rank, 0, b"", 0, 0, True, note="its output file was removed") for rank in (0, 1)]
    assert page_tail(gone, 500, "hint").notes == ("ranks 0-1: its output file was removed",)
    assert page_forward(gone, {}, 500).notes == ("ranks 0-1: its output file was removed",)


def test_an_error_of_a_script_reads_alike_on_all_hosts() -> None:
    said = "/s/meshes/mesh-a-b2c/hosts/%d/runs/run-7qd/script: line 2: syntax error\n"
    page = page_forward([piece((said % host).encode(), rank=host) for host in (0, 1)], {}, 500)
    assert page.text == "ranks 0-1:\nscript: line 2: syntax error"
    own = b"/hosts/1/runs/run-7qd/script.py and /data/hosts/1"
    assert page_forward([piece(own)], {}, 500).text == own.decode()


SLICE = 4096


def read_pages(
    outputs: list[bytes], max_bytes: int, *, ended: bool = True, slice_bytes: int = SLICE
) -> tuple[list[Page], list[str]]:
    """All pages of outputs, and what those that show one rank alone show of it."""
    offsets = dict.fromkeys(range(len(outputs)), 0)
    shown = [""] * len(outputs)
    pages: list[Page] = []
    while True:
        slices = [
            piece(
                data[offsets[rank] : offsets[rank] + slice_bytes],
                rank=rank,
                start=offsets[rank],
                size=len(data),
                ended=ended,
            )
            for rank, data in enumerate(outputs)
        ]
        page = page_forward(slices, offsets, max_bytes)
        pages.append(page)
        assert len(page.text.encode()) <= max_bytes
        moved = [rank for rank, following in page.offsets.items() if following != offsets[rank]]
        if len(outputs) == 1 and moved:
            passed = clean(outputs[0][offsets[0] : page.offsets[0]])
            shown[0] += page.text + ("\n" if passed.endswith("\n") else "")
        offsets = dict(page.offsets)
        if not page.more:
            return pages, shown
        assert moved


pieces_of_output = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\r\b")).map(str.encode),
    st.binary(max_size=20).map(lambda data: data.replace(b"\r", b"").replace(b"\b", b"")),
    st.sampled_from([b"\n", b"\x1b[31m", b"\x1b[0m", b"\x1b]0;title\x07", b"\x1bPdevice\x1b\\", b"\x1b(B"]),
    st.tuples(st.sampled_from(["x", "\u2603", "\U0001f4a5", "\x1b[1;32my"]), st.integers(1, 4000)).map(
        lambda pair: (pair[0] * pair[1]).encode()
    ),
)
outputs_of_a_rank = st.lists(pieces_of_output, max_size=8).map(b"".join)


@given(outputs_of_a_rank, st.integers(250, 9000))
@example(b"\xc2\x9d" + b"x" * 5000, 250)
@example(b"\x1bP" + b"x" * 5000, 300)
@settings(deadline=None, max_examples=60)
def test_pages_together_show_the_cleaned_output(output: bytes, max_bytes: int) -> None:
    _, shown = read_pages([output], max_bytes)
    assert shown == [clean(output).replace("\0", "")]


@given(st.lists(outputs_of_a_rank, min_size=2, max_size=5), st.integers(300, 3000))
@settings(deadline=None, max_examples=30)
def test_pages_of_several_ranks_advance_by_what_they_show(outputs: list[bytes], max_bytes: int) -> None:
    pages, _ = read_pages(outputs, max_bytes)
    assert dict(pages[-1].offsets) == {rank: len(data) for rank, data in enumerate(outputs)}
    assert not any("left out" in page.text for page in pages if b"left out" not in b"".join(outputs))


def test_long_lines_of_many_ranks_are_shown_in_full() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    outputs = [(letter * 3000 + "\n").encode() * 3 for letter in letters]
    pages, _ = read_pages(outputs, 1000)
    text = "\n".join(page.text for page in pages)
    for letter, output in zip(letters, outputs, strict=True):
        long = sum(len(run) for run in re.findall(rf"(?m)^{letter}+$", text))
        assert long == output.count(letter.encode())


def test_a_line_that_is_still_being_written_is_shown_up_to_its_last_whole_character() -> None:
    page = page_forward([piece("ready \u2603".encode()[:-1], ended=False)], {}, 500)
    assert (page.text, page.offsets, page.more) == ("ready ", {0: 6}, False)
    page = page_forward([piece(b"ready> \x1b[3", ended=False)], {}, 500)
    assert (page.text, page.offsets) == ("ready> ", {0: 7})


def test_a_long_progress_bar_is_parted_between_its_states() -> None:
    bar = b"".join(b"\r%3d%% of it" % at for at in range(100)) * 20
    pages, shown = read_pages([bar], 500)
    assert re.fullmatch(r"( *\d+% of it)+", shown[0])
    assert pages[-1].text.endswith("99% of it")


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
    page = page_forward([capped], {0: 0}, 500)
    assert page.offsets[0] < 10_000
    assert "fell out" not in page.text
