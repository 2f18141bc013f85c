"""Reading and writing transcripts, and what is said of those that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import InvalidArgument
from milkweed.server.transcripts.format import (
    EditStep,
    ExpectStep,
    Header,
    SayStep,
    ShellStep,
    ToolStep,
    Transcript,
    dump_line,
    parse,
)

HEADER = '{"kind": "header", "format": 1}\n'
STEPS = (
    SayStep(text="Let us see – what fails?\nLines."),
    ToolStep(name="run_on_mesh", arguments={"mesh": "${mesh1}", "wait_s": 2}, result={"state": "failed"}),
    EditStep(file="train.py", diff="--- a/train.py\n"),
    EditStep(file="empty.py", text=""),
    ShellStep(command="pip install tqdm", exit=0),
    ExpectStep(field="state", equals="succeeded"),
    ExpectStep(field="matched", equals=False),
    ExpectStep(number="loss ([0-9.]+)", at_most="${loss}"),
    ExpectStep(number="loss ([0-9.]+)", at_least=2.5),
)


def test_what_is_written_is_read_again() -> None:
    header = Header(title="a session", shape={"hosts": 4}, workspace="ws")
    text = dump_line(header) + "".join(map(dump_line, STEPS))
    assert parse(text) == Transcript(header=header, steps=STEPS)


def test_a_form_has_other_values_and_the_rest_as_they_were() -> None:
    header = Header(values={"steps": "900", "loss": "3.5"}, forms={"short": {"steps": "90"}})
    steps = (
        SayStep(text="${steps} of ${run1}"),
        EditStep(file="a.sh", text="echo ${steps}"),
        ExpectStep(number="loss ([0-9.]+)", at_most="${loss}"),
    )
    transcript = parse(dump_line(header) + "".join(map(dump_line, steps)))
    assert transcript == Transcript(header=header, steps=steps)
    assert transcript.in_form("").steps[0] == SayStep(text="900 of ${run1}")
    assert transcript.in_form("short").steps == (
        SayStep(text="90 of ${run1}"),
        steps[1],
        ExpectStep(number="loss ([0-9.]+)", at_most=3.5),
    )
    with pytest.raises(InvalidArgument, match=r"no form 'long'.*short"):
        transcript.in_form("long")
    with pytest.raises(InvalidArgument, match=r"step 3 compares with \$\{loss\}, which is not among"):
        Transcript(header=Header(), steps=steps).in_form("")


@given(st.text(), st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_any_words_are_kept(words: str, arguments: dict[str, object]) -> None:
    steps = SayStep(text=words), ToolStep(name=words, arguments=arguments, text=words)
    assert parse(HEADER + "".join(map(dump_line, steps))).steps == steps


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "is empty"),
        ('{"kind": "say", "text": "x"}\n', "begins with no header"),
        ('{"kind": "header", "format": 2}\n', "has format 2; this Milkweed reads up to 1"),
        ('{"kind": "header", "format": 1, "colour": "red"}\n', "header of s.jsonl: colour"),
        ('{"kind": "header", "format": 1, "values": {"run1": "x"}}\n', "'run1' cannot be the name of a value"),
        ('{"kind": "header", "format": 1, "forms": {"a": {"n": "1"}}}\n', "form 'a' has 'n', which is not among"),
        (HEADER + '{"kind": "expect", "at_most": "2 or 3"}\n', r"step 1 of s.jsonl \(line 2\): expect.at_most"),
        ("junk\n", "line 1 of s.jsonl is no JSON"),
        (HEADER + "[1]\n", r"step 1 of s.jsonl \(line 2\) is no object"),
        (HEADER + '{"kind": "dance"}\n', r"step 1 of s.jsonl \(line 2\): "),
        (HEADER + '\n{"kind": "say"}\n', r"step 1 of s.jsonl \(line 3\): say.text: Field required"),
        (HEADER + '{"kind": "say", "text": "a"}\n{"kind": "to', r"step 2 of s.jsonl \(line 3\) is cut"),
        (HEADER + '{"kind": "say", "text": "a"}\n{"kind": "to\n', r"step 2 of s.jsonl \(line 3\) is no JSON"),
        (HEADER + "[" * 100_000 + "\n", r"step 1 of s.jsonl \(line 2\) is no JSON"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_step(text: str, cause: str) -> None:
    with pytest.raises(InvalidArgument, match=cause) as raised:
        parse(text, "s.jsonl")
    assert raised.value.code == "transcript_unreadable"


def test_the_example_of_the_document_is_a_transcript() -> None:
    document = (Path(__file__).parents[3] / "transcripts" / "FORMAT.md").read_text()
    example = document.partition("```json\n")[2].partition("```")[0]
    assert [step.kind for step in parse(example).steps] == ["say", "tool", "shell", "tool", "expect"]
    for record in (Header, ToolStep, EditStep, ShellStep, SayStep, ExpectStep):
        assert all(f"`{name}`" in document for name in record.model_fields), record
