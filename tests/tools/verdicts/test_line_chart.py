"""Curves as a file that any browser shows."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.tools.verdicts.line_chart import line_chart, ticks

SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(-1e12, 1e12) | st.sampled_from((math.nan, math.inf))
CURVES = st.lists(st.tuples(st.integers(0, 9999), NUMBERS))


def curves(svg: str) -> list[list[tuple[float, float]]]:
    lines = ET.fromstring(svg).iter(f"{SVG}polyline")
    return [
        [(float(x), float(y)) for x, y in (spot.split(",") for spot in line.attrib["points"].split())]
        for line in lines
    ]


def test_a_falling_curve_falls_and_lies_within_its_panel() -> None:
    (spots,) = curves(line_chart("t", {"loss": {"rank 0": [(0, 4.0), (50, 2.0), (100, 1.0)]}}))
    assert [x for x, _ in spots] == sorted(x for x, _ in spots)
    assert [y for _, y in spots] == sorted(y for _, y in spots)


def test_what_is_not_finite_leaves_a_gap_and_a_lone_point_is_a_dot() -> None:
    values = [(1, 4.0), (2, 3.0), (3, math.nan), (4, 2.0), (5, 1.0), (6, math.inf), (7, 1.0)]
    svg = line_chart("t", {"loss": {"rank 0": values}})
    assert [len(spots) for spots in curves(svg)] == [2, 2]
    assert len(list(ET.fromstring(svg).iter(f"{SVG}circle"))) == 1


@given(st.dictionaries(st.text(), st.dictionaries(st.text(), CURVES)))
def test_any_names_and_values_make_a_file_that_can_be_read(
    panels: dict[str, dict[str, list[tuple[int, float]]]],
) -> None:
    svg = line_chart("<a & b>\x00", panels)
    height = float(ET.fromstring(svg).attrib["height"])
    for spots in curves(svg):
        assert all(0 <= x <= 760 and 0 <= y <= height for x, y in spots)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (3.1, 6.3, [4, 5, 6]), (-0.02, 0.013, [-0.02, -0.01, 0.0, 0.01])],
)
def test_ticks_are_round_and_within(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)
