"""Hosts whose surroundings differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from milkweed.runtime.evidence import Fingerprint

from .building import losses, raised, rank, told

FAILS = raised("RuntimeError: tokenlib cannot read vocabulary v3")


def ranks(*, text: str = FAILS, code: int = 1, **odd: Any) -> list[Any]:
    """Two hosts with two ranks each; those of the second have `odd` and fail, if they do."""
    usual = Fingerprint(
        python="3.11.4",
        packages={"tokenlib": "2.0", "numpy": "2.1"},
        torch="cpu",
        variables={"DATA_ROOT": "/data", "PATH": "/bin"},
        script="/project/train.py",
        script_hash="aa",
    )
    lost = raised("RuntimeError: Connection closed by peer") if code else ""
    found = []
    for number in range(4):
        is_odd = number > 1
        one = rank(number, host=number // 2, code=code, text=text if is_odd else lost, ended_at=9.0 - is_odd)
        found.append(replace(one, fingerprint=replace(usual, **odd) if is_odd else usual))
    return found


def drift(*given: Any) -> tuple[str, tuple[int, ...]]:
    found = told(*given)
    for one in (found.cause, found.other):
        if one is not None and one.kind == "environment_drift":
            return one.summary, one.ranks
    return "", ()


def test_a_package_that_the_failure_names_is_the_cause() -> None:
    found = told(*ranks(packages={"tokenlib": "1.4", "numpy": "2.1"})).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("environment_drift", (2, 3))
    assert "tokenlib" in found.summary
    assert "2.0" in found.summary
    assert "1.4" in found.summary
    assert "host 1 is the odd one" in found.summary


def test_modules_that_were_imported_tell_more_than_what_is_installed() -> None:
    modules = {"tokenlib": ("1.4", "/elsewhere/tokenlib.py")}
    given = ranks(modules=modules)
    usual = {"tokenlib": ("2.0", "/venv/tokenlib.py")}
    given[:2] = [replace(one, fingerprint=replace(one.fingerprint, modules=usual)) for one in given[:2]]
    assert "tokenlib" in drift(*given)[0]


def test_a_variable_a_python_and_a_script_are_told_too() -> None:
    assert drift(*ranks(variables={"DATA_ROOT": "/scratch", "PATH": "/bin"}))[0].startswith(
        "Variable DATA_ROOT"
    )
    assert drift(*ranks(python="3.9.1"))[0].startswith("Python")
    assert drift(*ranks(script_hash="bb"))[0].startswith("Script train.py")
    assert drift(*ranks(torch="cuda 12.8"))[0].startswith("Torch's build")


def test_what_each_rank_has_of_its_own_is_no_drift() -> None:
    own = {"DATA_ROOT": "/data", "PATH": "/other", "LOCAL_RANK": "1", "GROUP_RANK": "1", "HOME": "/h"}
    assert drift(*ranks(variables=own)) == ("", ())
    assert drift(*ranks()) == ("", ())


def test_a_run_that_is_well_has_no_drift_whatever_differs() -> None:
    assert drift(*ranks(text="", code=0, packages={"tokenlib": "1.4"})) == ("", ())


def test_losses_that_differ_as_the_hosts_do_are_a_drift() -> None:
    given = ranks(text="", code=0, packages={"tokenlib": "1.4", "numpy": "2.1"})
    told_by = [replace(one, metrics=losses(2.0, 1.5, 0.5 if one.host else 1.0)) for one in given]
    assert drift(*told_by)[1] in ((0, 1), (2, 3))


def test_a_host_that_told_nothing_differs_in_nothing() -> None:
    given = [replace(one, fingerprint=Fingerprint()) if one.host else one for one in ranks()]
    assert drift(*given) == ("", ())


def test_a_variable_that_differs_as_sizes_do_is_told_beside_them() -> None:
    text = "op.preamble.length <= op.nbytes. 4096 vs 3072. Received data size doesn't match expected size."
    lost = raised("RuntimeError: Connection reset by peer")
    others = [rank(n, code=1, text=lost, env={"WIDTH": "64"}) for n in (0, 1)]
    odd = [rank(n, host=1, signal=6, text=text, env={"WIDTH": "48"}) for n in (2, 3)]
    found = told(*others, *odd)
    assert found.cause is not None
    assert found.cause.kind == "shape_mismatch"
    assert found.other is not None
    assert (found.other.kind, found.other.ranks) == ("environment_drift", (2, 3))
