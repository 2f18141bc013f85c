"""What ended a rank is read from its exit and its output, and ranks that failed alike are one group."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.records import Exit
from milkweed.tools.verdicts import (
    PythonFailure,
    RankFailure,
    exit_in_words,
    first_failure,
    group_failures,
    parse_failure,
)
from milkweed.tools.verdicts.tracebacks import start_of_last


def run(directory: Path, code: str, *argv: str) -> str:
    """What Python writes when it runs this script."""
    (directory / "script.py").write_text(dedent(code))
    argv = argv or ("script.py",)
    done = subprocess.run([sys.executable, *argv], cwd=directory, capture_output=True, text=True, check=False)
    return done.stderr


def failure_of(directory: Path, code: str) -> PythonFailure:
    failure = parse_failure(run(directory, code), workspace=str(directory))
    assert failure is not None
    return failure


def test_an_exception_is_told_with_the_users_frames(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, "def f(n):\n    raise ValueError(f'bad {n}')\nf(3)\n")
    assert (failure.exception, failure.message) == ("ValueError", "bad 3")
    assert (failure.file, failure.line) == ("script.py", 2)
    assert failure.traceback.splitlines() == [
        "  script.py:3 <module>: f(3)",
        "  script.py:2 f: raise ValueError(f'bad {n}')",
        "ValueError: bad 3",
    ]


def test_library_frames_are_folded_and_the_users_line_is_named(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, "import json\n\njson.loads('{')\n")
    assert failure.exception == "json.decoder.JSONDecodeError"
    assert (failure.file, failure.line) == ("script.py", 3)
    assert "  ... 3 library frames to json/decoder.py:" in failure.traceback


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, "import no_such_module_here\n")
    assert str(failure) == "ModuleNotFoundError: No module named 'no_such_module_here'"


@pytest.mark.parametrize(
    ("source", "line"), [("x = (1,\n", 1), ("def f(:\n    pass\n", 1), ("if 1:\nx = 2\n", 2)]
)
def test_a_syntax_error_of_the_script_has_no_traceback_and_is_told(
    tmp_path: Path, source: str, line: int
) -> None:
    failure = failure_of(tmp_path, source)
    assert failure.exception in ("SyntaxError", "IndentationError")
    assert (failure.file, failure.line) == ("script.py", line)


def test_a_syntax_error_of_an_imported_module_is_placed_there(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = (1,\n")
    failure = failure_of(tmp_path, "import broken\n")
    assert (failure.exception, failure.file, failure.line) == ("SyntaxError", "broken.py", 1)


@pytest.mark.parametrize("last", ["raise RuntimeError('second') from error", "raise RuntimeError('second')"])
def test_of_a_chain_the_last_counts_and_its_cause_is_named(tmp_path: Path, last: str) -> None:
    failure = failure_of(tmp_path, f"try:\n    {{}}['x']\nexcept KeyError as error:\n    {last}\n")
    assert str(failure) == "RuntimeError: second"
    assert failure.cause == "KeyError: 'x'"
    assert failure.line == 4


def test_of_an_exception_group_the_inner_exception_is_told(tmp_path: Path) -> None:
    code = """
        import anyio
        async def leaf():
            raise ValueError("leaf")
        async def main():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(leaf)
        anyio.run(main)
    """
    failure = failure_of(tmp_path, code)
    assert (str(failure), failure.line) == ("ValueError: leaf", 4)


def test_an_exception_of_a_thread_counts_only_alone(tmp_path: Path) -> None:
    thread = "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()\n"
    assert failure_of(tmp_path, thread).exception == "ZeroDivisionError"
    assert (
        failure_of(
            tmp_path,
            "try:\n    raise OSError('first')\nfinally:\n"
            + "".join(f"    {line}\n" for line in thread.splitlines()),
        ).exception
        == "OSError"
    )


@pytest.mark.parametrize(
    "more", ["", "\n\nThe above exception was the direct cause of the following exception:\n"]
)
def test_an_exception_that_nobody_retrieved_counts_only_alone(more: str) -> None:
    task = (
        "Task exception was never retrieved\nfuture: <Task finished name='Task-9'>\n"
        "  | BaseExceptionGroup:  (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
        '    | Traceback (most recent call last):\n    |   File "/lib/a.py", line 1, in run\n'
        "    | asyncio.exceptions.CancelledError\n"
    )
    if more:
        task += (
            f'{more}\nTraceback (most recent call last):\n  File "/lib/a.py", line 2, in run\nKeyError: 1\n'
        )
    own = (
        'Traceback (most recent call last):\n  File "/ws/a.py", line 7, in main\n    x.y\nAttributeError: y\n'
    )
    told = parse_failure(own + task, workspace="/ws")
    assert (str(told), told and told.line) == ("AttributeError: y", 7)
    alone = parse_failure(task, workspace="/ws")
    assert alone is not None
    assert alone.exception == ("KeyError" if more else "asyncio.exceptions.CancelledError")


REMOTE = """\
import json
from milkweed.runtime.errors import ActorError
def there():
    {}["width"]
try:
    there()
except KeyError as error:
    trace = 'Traceback (most recent call last):\\n  File "script.py", line 4, in there\\n    {}["width"]\\n'
    trace += "KeyError: 'width'"
    lost = ActorError("actor_error", "t.there on rank 2 raised KeyError: 'width'", "x", "KeyError", trace)
"""


@pytest.mark.parametrize("chained", [False, True])
def test_an_exception_from_another_process_is_told_with_who_told_it_and_where_it_was_raised(
    tmp_path: Path, chained: bool
) -> None:
    text = run(
        tmp_path,
        REMOTE + ("raise RuntimeError('1 of 4 ranks failed') from lost" if chained else "raise lost"),
    )
    failure = parse_failure(text, workspace=str(tmp_path))
    assert failure is not None
    assert failure.line == 11
    assert ("1 of 4 ranks" if chained else "t.there on rank 2 raised KeyError") in str(failure)
    *_, told, cause, place = failure.traceback.splitlines()
    assert told == str(failure)
    assert (cause, place) == ("from KeyError: 'width'", '  script.py:4 there: {}["width"]')


@pytest.mark.parametrize(
    "code",
    [
        "1 / 0",
        "try:\n    1 / 0\nexcept Exception:\n    raise ValueError('a\\nb')",
        "raise ValueError from KeyError(1)",
        REMOTE + "raise lost",
        REMOTE + "raise RuntimeError('1 of 4') from lost",
    ],
)
def test_the_last_traceback_begins_where_those_begin_that_led_to_it(tmp_path: Path, code: str) -> None:
    before = "Traceback (most recent call last):\nOSError: caught before\n\nepoch 1\n"
    data = f"{before}{run(tmp_path, code)}".encode()
    assert data[: start_of_last(data) or 0].decode() == before


def test_without_a_traceback_none_begins() -> None:
    assert start_of_last(b"epoch 1\n") is None


def test_a_crash_of_the_interpreter_shows_its_stack(tmp_path: Path) -> None:
    code = "import faulthandler, os\nfaulthandler.enable()\ndef f():\n    os.kill(os.getpid(), 11)\nf()\n"
    failure = failure_of(tmp_path, code)
    assert str(failure) == "Fatal Python error: Segmentation fault"
    assert (failure.file, failure.line) == ("script.py", 4)


def test_deep_recursion_and_long_messages_stay_short(tmp_path: Path) -> None:
    assert len(failure_of(tmp_path, "def f(): f()\nf()\n").traceback) < 1100
    chain = "".join(f"def f{n}():\n    f{n + 1}()\n" for n in range(40))
    failure = failure_of(tmp_path, chain + "def f40():\n    raise ValueError('x' * 100_000)\nf0()\n")
    assert len(failure.message) < 500
    assert len(failure.traceback) < 1600
    assert "more outside" in failure.traceback


def test_a_module_or_script_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert str(parse_failure(run(tmp_path, "", "-m", "nope"))) == "ModuleNotFoundError: No module named nope"
    assert "nope.py" in str(parse_failure(run(tmp_path, "", "nope.py")))


def test_prefixes_of_launchers_and_their_own_reports_are_no_obstacle() -> None:
    text = dedent(
        """\
        step 1
        [rank3]: Traceback (most recent call last):
        [rank3]:   File "/w/train.py", line 41, in train
        [rank3]:     loss.backward()
        [rank3]:   File "/v/lib/python3.11/site-packages/torch/_tensor.py", line 648, in backward
        [rank3]:     torch.autograd.backward(
        a line of another process
        [rank3]: RuntimeError: shape mismatch
        Traceback (most recent call last):
          File "/v/bin/torchrun", line 8, in <module>
            sys.exit(main())
        torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
        ============================================================
        train.py FAILED
        """
    )
    failure = parse_failure(text, workspace="/w")
    assert failure is not None
    assert (str(failure), failure.file, failure.line) == ("RuntimeError: shape mismatch", "train.py", 41)


@pytest.mark.parametrize(
    "text", ["", "all good\n", "Traceback (most recent call last):", "Error: no\n" * 100]
)
def test_text_without_an_exception_gives_none(text: str) -> None:
    assert parse_failure(text) is None


@given(
    st.text(st.sampled_from('Traceback (most recent call last):\n  File "a", line 1, in fValueError: |+-'))
)
def test_no_text_is_too_strange_to_read(text: str) -> None:
    parse_failure(text)
    parse_failure(f"Traceback (most recent call last):\n{text}")


@pytest.mark.parametrize(
    ("exit_", "words"),
    [
        (Exit(code=1), "exit 1"),
        (Exit(code=0), "exit 0"),
        (Exit(signal=11), "SIGSEGV"),
        (Exit(signal=9), "SIGKILL"),
        (Exit(signal=9, oom_kills=1), "SIGKILL, likely out of memory: the kernel's oom_kill counter rose"),
        (Exit(signal=44), "signal 44"),
        (Exit(code=139), "exit 139 (as shells say: SIGSEGV in a child)"),
        (Exit(code=127), "exit 127 (as shells say: the command was not found)"),
        (Exit(code=255), "exit 255"),
        (Exit(signal=15, ended_by="cancelled"), "ended by Milkweed: cancelled"),
        (Exit(error="no such file: ./x"), "never started: no such file: ./x"),
        (Exit(), "ended, how is not known"),
    ],
)
def test_exits_are_said_in_words(exit_: Exit, words: str) -> None:
    assert exit_in_words(exit_) == words


def failed(rank: int, at: float | None, message: str = "bad", **exit_: object) -> RankFailure:
    failure = PythonFailure("ValueError", message, file="a.py", line=3)
    return RankFailure(rank, 0, Exit(**(exit_ or {"code": 1})), at, failure)  # type: ignore[arg-type]


def test_the_earliest_failure_is_first() -> None:
    failures = [failed(0, 3.0), failed(1, 2.0), failed(2, None), RankFailure(3, 0, Exit(code=0), 1.0)]
    first = first_failure(failures)
    assert first is not None
    assert first.rank == 1
    assert first_failure([]) is None


def test_what_milkweed_ended_is_never_first_while_another_failed_by_itself() -> None:
    ended = failed(0, 1.0, signal=15, ended_by="peer_failed")
    first = first_failure([ended, failed(1, 2.0)])
    assert first is not None
    assert first.rank == 1
    assert first_failure([ended]) is ended


def test_a_lost_connection_is_not_first_when_another_failed_otherwise_just_after() -> None:
    lost = failed(0, 1.0, "Connection closed by peer [127.0.0.1]:4000")
    first = first_failure([lost, failed(1, 1.5)])
    assert first is not None
    assert first.rank == 1
    assert first_failure([lost, failed(1, 100.0)]) is lost


def test_failures_that_differ_in_numbers_and_addresses_alone_are_one_group() -> None:
    failures = [
        failed(rank, 10.0 - rank, f"rank {rank} at 0x7f{rank} in /tmp/run-{rank}1/x") for rank in range(4)
    ]
    failures.append(failed(4, 20.0, "other"))
    failures.append(failed(5, 5.0, signal=15, ended_by="peer_failed"))
    groups = group_failures(failures)
    assert [group.ranks for group in groups] == [(0, 1, 2, 3), (4,), (5,)]
    assert groups[0].first.rank == 3


FAILURES = st.lists(
    st.builds(
        failed,
        st.integers(0, 30),
        st.one_of(st.none(), st.floats(0, 100)),
        st.sampled_from(["a 1", "a 2", "b"]),
        code=st.integers(0, 2),
    ),
    unique_by=lambda one: one.rank,
)


@given(FAILURES)
def test_every_failed_rank_is_in_one_group_and_the_first_leads(failures: list[RankFailure]) -> None:
    groups = group_failures(failures)
    ranks = [rank for group in groups for rank in group.ranks]
    assert sorted(ranks) == sorted(one.rank for one in failures if not one.exit.ok)
    if groups:
        assert groups[0].first == first_failure(failures)
