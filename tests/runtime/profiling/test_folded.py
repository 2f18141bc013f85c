"""Folded stacks of py-spy, as it writes them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.profiling import FoldedStack, parse_folded
from milkweed.runtime.records import Frame

MODULE = Frame("<module>", "/w/train.py", 17)
HOT = Frame("hot", "/w/train.py", 4)


def test_stacks_have_their_outermost_frame_first() -> None:
    text = """process 7:"python train.py";<module> (/w/train.py:17);hot (/w/train.py:4) 77
process 7:"python train.py";<module> (/w/train.py:17) 1
"""
    assert parse_folded(text) == (FoldedStack((MODULE, HOT), 77, 7), FoldedStack((MODULE,), 1, 7))


def test_what_a_child_spends_is_told_apart() -> None:
    text = 'process 7:"python train.py";process 9:"python -c x";<module> (/w/train.py:17) 3\n'
    assert parse_folded(text) == (FoldedStack((MODULE,), 3, 9),)


def test_a_command_may_have_anything_in_it() -> None:
    program = 'python -c x = "a;b (c:1) 2";\n\nprocess 3:"\nfor i in 1: print("z");\n  f() 12'
    text = f'process 7:"{program}";<module> (<string>:5) 107\nprocess 7:"{program}";f (<string>:1) 2\n'
    first, second = parse_folded(text)
    assert (first.frames, first.count) == ((Frame("<module>", "<string>", 5),), 107)
    assert (second.frames, second.count) == ((Frame("f", "<string>", 1),), 2)


def test_native_frames_have_no_line_or_no_file() -> None:
    text = "main (/w/a.py:1);gemm<a; b> (libtorch_cpu.so);0x7f12 (/usr/lib/libc.so.6) 2\n"
    (stack,) = parse_folded(text)
    assert stack.frames[1:] == (
        Frame("gemm<a; b>", "libtorch_cpu.so", 0),
        Frame("0x7f12", "/usr/lib/libc.so.6", 0),
    )
    assert stack.pid is None


def test_paths_may_have_blanks_and_parentheses() -> None:
    (stack,) = parse_folded("f (/my work (old)/a b.py:3);g (/my work (old)/a b.py:4) 5\n")
    assert [(frame.function, frame.line) for frame in stack.frames] == [("f", 3), ("g", 4)]
    assert stack.frames[0].file.endswith("a b.py")


@given(st.text())
def test_nothing_breaks_it(text: str) -> None:
    assert all(stack.count >= 0 and stack.frames for stack in parse_folded(text))


def test_a_deep_stack_is_read_whole() -> None:
    text = ";".join(f"f{n} (/w/a.py:{n + 1})" for n in range(10_000)) + " 4\n"
    (stack,) = parse_folded(text)
    assert len(stack.frames) == 10_000
