from __future__ import annotations

import pytest

from milkweed.runtime.agent.warm_modules import VARIABLE, modules_of_procs, modules_of_runs


def test_where_nothing_is_said_runs_find_torch_and_procs_only_what_they_are_made_of() -> None:
    assert modules_of_runs({}) == ("torch",)
    assert modules_of_procs({}) == ()


@pytest.mark.parametrize(
    ("text", "names"),
    [("", ()), ("torch", ("torch",)), ("torch, numpy,", ("torch", "numpy")), (" ", ()), (",", ())],
)
def test_what_is_said_holds_for_both(text: str, names: tuple[str, ...]) -> None:
    assert modules_of_runs({VARIABLE: text}) == modules_of_procs({VARIABLE: text}) == names
