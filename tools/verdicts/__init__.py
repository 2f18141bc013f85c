"""Judgements as pure functions of what was recorded: no process, no file."""

from .cleaning import clean, finished_end, part
from .failures import FailureGroup, RankFailure, exit_in_words, first_failure, group_failures
from .folding import fold, format_gap, name_ranks
from .frames import without_host
from .searching import grep
from .stack_report import render
from .stacks import StackGroup, group_stacks, verdict
from .tracebacks import PythonFailure, parse_failure

__all__ = [
    "FailureGroup",
    "PythonFailure",
    "RankFailure",
    "StackGroup",
    "clean",
    "exit_in_words",
    "finished_end",
    "first_failure",
    "fold",
    "format_gap",
    "grep",
    "group_failures",
    "group_stacks",
    "name_ranks",
    "parse_failure",
    "part",
    "render",
    "verdict",
    "without_host",
]
