"""What is told of an output's end."""

from __future__ import annotations

from milkweed.runtime.services.last_words import LastWords, last_words

DUMP = """Fatal Python error: Aborted

Current thread 0x00007f0000000001 (most recent call first):
  File "a.py", line 1 in f

Extension modules: x (total: 1)
"""


def test_the_last_twenty_lines_are_kept_without_blank_ones() -> None:
    text = "\n\n".join(f"line {n}" for n in range(30))
    assert last_words(text.encode()) == LastWords(tuple(f"line {n}" for n in range(10, 30)))


def test_a_dump_is_no_line_of_output_but_for_its_reason() -> None:
    found = last_words(f"one\ntwo\n{DUMP}".encode())
    assert found.tail == ("one", "two", "Fatal Python error: Aborted")
    assert found.stacks.startswith("Current thread")
    assert found.stacks.endswith("(total: 1)")


def test_only_the_last_dump_counts() -> None:
    found = last_words(f"{DUMP.replace('a.py', 'old.py')}{DUMP}".encode())
    assert "old.py" not in found.stacks


def test_long_lines_and_odd_bytes_are_bounded() -> None:
    found = last_words(b"\xff" * 10_000 + b"\nend")
    assert len(found.tail[0]) == 400
    assert found.tail[1] == "end"
    assert last_words(b"") == LastWords()
