"""Transcripts of session logs of Claude Code."""

import json
import re
from typing import Any

import pytest

from milkweed.runtime.errors import InvalidArgument
from milkweed.server.redaction import Redactor
from milkweed.server.transcripts.claude_code import Said, ToolUse, mcp_tool, read_log
from milkweed.server.transcripts.diffs import apply_diff
from milkweed.server.transcripts.format import EditStep, SayStep, ShellStep, ToolStep, dump_line, parse
from milkweed.server.transcripts.importing import Imported, import_log
from tests.server.transcripts.claude_logs import BEFORE, ClaudeLog, a_session

TOOLS = {
    "allocate_mesh": "mesh",
    "run_on_mesh": "run",
    "read_run_output": "run",
    "cancel_run": "run",
    "plot_metrics": "train",
}


def imported(log: ClaudeLog, **options: Any) -> Imported:
    chosen = {"default_toolsets": ("mesh", "run"), "at_first": {}, "paths": {}, "redact": Redactor()}
    return import_log(read_log(log.text), TOOLS, **{**chosen, **options})


def test_calls_edits_words_and_installations_become_steps() -> None:
    found = imported(a_session())
    kinds = [step.kind for step in found.transcript.steps]
    assert kinds == ["say", "say", "tool", "shell", "edit", "edit", "tool", "tool", "tool", "say"]
    header = found.transcript.header
    assert (header.title, header.shape) == ("Train it on two hosts.", {"hosts": 2, "procs_per_host": 1})
    assert (header.imported_from, header.toolsets) == ("Claude Code 2.1.86", "default")
    assert found.left_out == {"commands on the client's machine": 1, "uses of TodoWrite": 1}


def test_what_differs_from_session_to_session_has_a_name_and_secrets_are_out() -> None:
    steps = imported(a_session()).transcript.steps
    text = "".join(map(dump_line, steps))
    assert not re.search(r"mesh-t-abc|run-7qd|/home/u|hf_abc", text)
    first = next(step for step in steps if isinstance(step, ToolStep))
    assert (first.arguments["workspace"], (first.result or {})["mesh"]) == ("${workspace}", "${mesh1}")


def test_answers_are_as_the_agent_saw_them() -> None:
    steps = [step for step in imported(a_session()).transcript.steps if isinstance(step, ToolStep)]
    assert steps[1].result == {"run": "${run1}", "mesh": "${mesh1}", "state": "succeeded"}
    assert (steps[2].result, steps[2].text) == (None, "loss 0.5 in ${workspace}/train.py")
    assert (steps[3].is_error, steps[3].text[:13]) == (True, "run_not_found")
    assert steps[1].duration_s == 1


def test_edits_fit_the_files_as_they_were_at_first() -> None:
    found = imported(a_session())
    assert found.files == {"train.py": BEFORE}
    edit, new = (step for step in found.transcript.steps if isinstance(step, EditStep))
    assert apply_diff(BEFORE, edit.diff) == BEFORE.replace("10.0", "0.1")
    assert (new.file, new.text) == ("new/data.py", "N = 3\n")


def test_a_secret_in_an_edited_file_is_out_and_the_edit_still_fits() -> None:
    log = a_session()
    secret = 'API_KEY = "abcdefgh12345"\nx = 1\n'
    log.uses(
        "Edit",
        {"file_path": "/home/u/proj/keys.py", "old_string": "x = 1", "new_string": "x = 2"},
        "ok",
        originalFile=secret,
    )
    found = imported(log)
    edit = [step for step in found.transcript.steps if isinstance(step, EditStep)][-1]
    assert "abcdefgh12345" not in found.files["keys.py"] + edit.diff
    assert apply_diff(found.files["keys.py"], edit.diff).endswith("x = 2\n")


def test_edits_follow_one_another_where_the_log_has_no_original() -> None:
    log = a_session()
    for old, new in (("0.1", "0.2"), ("0.2", "0.3")):
        log.uses(
            "Edit", {"file_path": "/home/u/proj/train.py", "old_string": old, "new_string": new}, "ok"
        )
    several = [{"old_string": "N", "new_string": "M", "replace_all": True}, {"old_string": "3", "new_string": "4"}]
    log.uses("MultiEdit", {"file_path": "/home/u/proj/new/data.py", "edits": several}, "ok")
    log.uses("Edit", {"file_path": "/home/u/proj/unknown.py", "old_string": "a", "new_string": "b"}, "ok")
    log.uses("Edit", {"file_path": "/etc/hosts", "old_string": "a", "new_string": "b"}, "ok")
    log.uses(
        "Edit",
        {"file_path": "/home/u/proj/train.py", "old_string": "zz", "new_string": "b"},
        "not found",
        is_error=True,
    )
    found = imported(log)
    text = dict(found.files)
    for step in found.transcript.steps:
        if isinstance(step, EditStep):
            text[step.file] = step.text if step.text is not None else apply_diff(text[step.file], step.diff)
    assert "LR = 0.3" in text["train.py"]
    assert text["new/data.py"] == "M = 4\n"
    assert found.left_out["edits of files whose text is not in the log"] == 1
    assert found.left_out["edits that failed or are outside of the workspace"] == 2


def test_a_file_that_was_read_as_a_whole_is_part_of_the_workspace() -> None:
    log = a_session()
    for name, total in (("model.py", 2), ("long.py", 900)):
        read = {"filePath": f"/home/u/proj/{name}", "content": "a\nb\n", "startLine": 1, "numLines": 2}
        log.uses("Read", {"file_path": f"/home/u/proj/{name}"}, "1 a", file={**read, "totalLines": total})
    assert imported(log).files == {"train.py": BEFORE, "model.py": "a\nb\n"}


def test_the_workspace_can_be_given_as_it_was() -> None:
    found = imported(a_session(), at_first={"train.py": BEFORE, "model.py": "M\n"})
    assert found.files == {"train.py": BEFORE, "model.py": "M\n"}


@pytest.mark.parametrize(
    ("shell", "commands"),
    [("installs", [".venv/bin/pip install tqdm"]), ("all", ["ls -la", ".venv/bin/pip install tqdm"]), ("none", [])],
)
def test_only_commands_that_are_wanted_become_steps(shell: str, commands: list[str]) -> None:
    steps = imported(a_session(), shell=shell).transcript.steps
    assert [step.command for step in steps if isinstance(step, ShellStep)] == commands


def test_other_toolsets_that_were_used_are_in_the_header() -> None:
    log = a_session()
    log.uses("mcp__cluster__plot_metrics", {"target": "run-7qd"}, "drawn")
    assert imported(log).transcript.header.toolsets == "default,train"


def test_what_is_written_down_is_a_transcript() -> None:
    found = imported(a_session()).transcript
    assert parse("".join(map(dump_line, (found.header, *found.steps)))) == found


def test_a_log_without_calls_of_milkweeds_is_refused() -> None:
    log = ClaudeLog()
    log.uses("mcp__other__allocate", {}, "ok")
    with pytest.raises(InvalidArgument, match=r"log_unreadable.*no answered call.*mcp__milkweed__"):
        imported(log)


def test_lines_of_other_agents_repeats_and_the_program_itself_are_passed_over() -> None:
    log = ClaudeLog()
    log.line("assistant", {"role": "assistant", "content": "of another agent"}, isSidechain=True)
    log.line("user", {"role": "user", "content": "of the program"}, isMeta=True)
    log.line("assistant", {"role": "assistant", "content": "once"}, uuid="same")
    log.line("assistant", {"role": "assistant", "content": "once"}, uuid="same")
    log.line("system", {"role": "system", "content": "no"})
    log.line("assistant", {"role": "assistant", "content": [7, {"type": "image"}, {"type": "text"}]})
    assert read_log(log.text).entries == (Said("once"),)


def test_a_call_without_an_answer_is_counted_and_a_cut_end_is_none() -> None:
    log = a_session()
    use = {"type": "tool_use", "id": "t", "name": "mcp__milkweed__run_on_mesh", "input": {}}
    log.line("assistant", {"role": "assistant", "content": [use]})
    text = log.text + '{"type": "assistant", "mess'
    assert read_log(text).unanswered == 1
    assert read_log(text).directory == "/home/u/proj"


@pytest.mark.parametrize("text", ["x\n", "[1]\n", '{"type":"user"}\n{"cut\n', "\x00\n"])
def test_what_is_no_log_says_which_line(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"log_unreadable: line \d of the log is no"):
        read_log(text)


@pytest.mark.parametrize(
    "result",
    [{"content": None}, {"content": 3}, {"content": [{"type": "image"}]}, {"content": "{not json"}, {}],
)
def test_odd_answers_are_text(result: dict[str, Any]) -> None:
    log = ClaudeLog()
    use = {"type": "tool_use", "id": "t", "name": "mcp__m__run_on_mesh", "input": "no object"}
    log.line("assistant", {"role": "assistant", "content": [use]}, timestamp="yesterday")
    block = {"type": "tool_result", "tool_use_id": "t", **result}
    log.line("user", {"role": "user", "content": [block]}, toolUseResult="Error: no")
    (one,) = read_log(log.text).entries
    assert isinstance(one, ToolUse)
    assert (one.arguments, one.known) == ({}, {})
    (step,) = imported(log).transcript.steps
    assert isinstance(step, ToolStep)
    assert step.result is None
    assert json.loads(dump_line(step))


def test_names_of_tools_are_told_from_others() -> None:
    assert [mcp_tool(name) for name in ("mcp__a__b_c", "mcp__a__b__c", "mcp__a", "Bash", "")] == [
        "b_c",
        "b__c",
        "",
        "",
        "",
    ]


def test_words_of_the_user_are_marked() -> None:
    says = [step for step in imported(a_session()).transcript.steps if isinstance(step, SayStep)]
    assert [step.text[:8] for step in says] == ["> Train ", "First a ", "It train"]
