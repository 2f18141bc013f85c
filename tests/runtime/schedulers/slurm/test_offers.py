from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.schedulers.slurm.asking import is_own_address
from milkweed.runtime.schedulers.slurm.offers import (
    Node,
    elsewhere,
    nodes_from_plain,
    partitions_from_plain,
    seconds_of,
)

ANSWERS = Path(__file__).parent / "answers"


def test_a_real_answer_of_sinfo_is_read() -> None:
    gpu, short, urgent = partitions_from_plain((ANSWERS / "sinfo-22.05.txt").read_text())
    assert (gpu.name, gpu.default, gpu.up, gpu.limit_s) == ("gpu", True, True, None)
    assert (gpu.total, gpu.gres, gpu.cpus, gpu.features) == (4, "gpu:h100:4", "8", "")
    assert (short.name, short.default, short.limit_s) == ("short", False, 600)
    assert urgent.name == "urgent"


def test_a_real_answer_about_nodes_is_read() -> None:
    nodes = nodes_from_plain((ANSWERS / "nodes-22.05.txt").read_text())
    assert [node.name for node in nodes] == ["n0", "n1", "n2", "n3"]
    assert nodes[0] == Node("n0", "127.0.0.1", "head", ("gpu", "short", "urgent"))


@given(st.text(alphabet="gpu*|up/0123456789\n", max_size=60))
def test_lines_that_are_none_are_left_out(text: str) -> None:
    partitions_from_plain(text)
    nodes_from_plain(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("infinite", None),
        ("n/a", None),
        ("30", 1800),
        ("30:05", 1805),
        ("1:00:00", 3600),
        ("2-12", 216000),
        ("1-00:30", 88200),
        ("7-00:00:00", 604800),
    ],
)
def test_limits_are_read(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@given(st.integers(0, 30), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_a_limit_in_full_is_its_sum(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}"
    assert seconds_of(text) == days * 86400 + hours * 3600 + minutes * 60 + seconds


def test_nodes_that_are_other_machines_are_named() -> None:
    nodes = [Node(f"n{k}", f"10.0.0.{k}", "x") for k in range(5)]
    assert elsewhere(nodes, lambda _: True) == ""
    assert elsewhere(nodes, lambda address: address != "10.0.0.3") == "n3 is another machine"
    assert elsewhere(nodes, lambda _: False) == "n0, n1, n2 and 2 more are other machines"


def test_an_address_is_ones_own_if_it_can_be_bound_to() -> None:
    assert is_own_address("127.0.0.1")
    assert not is_own_address("203.0.113.1")  # for documentation: nobody has it
    assert not is_own_address("no.such.host.invalid")
