"""A transcript as Markdown."""

from milkweed.server.transcripts.format import (
    EditStep,
    ExpectStep,
    Header,
    SayStep,
    ShellStep,
    ToolStep,
    Transcript,
)
from milkweed.server.transcripts.text import as_markdown

HEADER = Header(title="A hang", milkweed="1.0", shape={"hosts": 2, "procs_per_host": 4})


def test_a_session_reads_from_top_to_bottom() -> None:
    steps = (
        SayStep(text="It hangs."),
        ToolStep(name="list_meshes", arguments={}, result={"meshes": []}),
        ToolStep(name="cancel_run", arguments={"run": "r"}, text="run_not_found: none", is_error=True),
        EditStep(file="train.py", diff="--- a/train.py\n+++ b/train.py\n-1\n+2\n"),
        ShellStep(command="pip list", output="torch 2"),
        ExpectStep(field="state", equals="ready"),
    )
    assert as_markdown(Transcript(header=HEADER, steps=steps)) == (
        "# A hang\n\nRecorded with Milkweed 1.0 on local, 2 x 4 (hosts x procs).\n\nIt hangs.\n\n"
        '**list_meshes()**\n\n```\n{"meshes": []}\n```\n\n'
        '**cancel_run(run="r")** failed\n\n```\nrun_not_found: none\n```\n\n'
        "```diff\n--- a/train.py\n+++ b/train.py\n-1\n+2\n```\n\n"
        "```sh\n$ pip list\ntorch 2\n```\n"
    )


def test_an_answer_cannot_end_its_block() -> None:
    text = as_markdown(Transcript(header=HEADER, steps=(ToolStep(name="x", arguments={}, text="```\n# a"),)))
    assert "````\n```\n# a\n````" in text


def test_long_answers_are_cut_and_say_so() -> None:
    step = ToolStep(name="x", arguments={}, text="y" * 5000)
    text = as_markdown(Transcript(header=HEADER, steps=(step,)))
    assert "... 3800 more characters" in text
    assert len(text) < 2000
