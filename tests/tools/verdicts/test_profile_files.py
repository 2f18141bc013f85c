"""Files of a profile: speedscope's documented format, and a flame graph that any browser shows."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.profiling import FoldedStack
from milkweed.runtime.records import Frame
from milkweed.tools.verdicts.flame_graph import flame_graph
from milkweed.tools.verdicts.speedscope import speedscope

MAIN = Frame("main", "/w/train.py", 30)
STEP = Frame("step", "/w/train.py", 12)
LINEAR = Frame("linear", "/v/lib/python3.11/site-packages/torch/nn/functional.py", 0)
STACKS = (FoldedStack((MAIN, STEP, LINEAR), 30), FoldedStack((MAIN, STEP), 10), FoldedStack((MAIN,), 60))
SVG = "{http://www.w3.org/2000/svg}"


def check_speedscope(document: dict[str, Any]) -> None:
    """What the format's schema asks of a file with sampled profiles."""
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    for frame in frames:
        assert isinstance(frame["name"], str)
        assert set(frame) <= {"name", "file", "line", "col"}
        assert frame.get("line", 1) >= 1
    assert 0 <= document["activeProfileIndex"] < len(document["profiles"])
    for profile in document["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert (profile["type"], profile["unit"]) == ("sampled", "none")
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        assert all(0 <= at < len(frames) for sample in profile["samples"] for at in sample)


def test_the_speedscope_file_has_a_profile_for_all_ranks_and_for_each() -> None:
    document = json.loads(json.dumps(speedscope("run-1", {"all ranks": STACKS, "rank 0": STACKS[:1]})))
    check_speedscope(document)
    assert [one["name"] for one in document["profiles"]] == ["all ranks", "rank 0"]
    frames = document["shared"]["frames"]
    assert [frames[at]["name"] for at in document["profiles"][1]["samples"][0]] == ["main", "step", "linear"]


def boxes(svg: str) -> dict[str, tuple[float, float, float]]:
    """Left edge, top and width by title."""
    found = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        rect, title = group.find(f"{SVG}rect"), group.find(f"{SVG}title")
        assert rect is not None
        assert title is not None
        left, top, width = (float(rect.attrib[name]) for name in ("x", "y", "width"))
        found[str(title.text)] = (left, top, width)
    return found


def test_a_box_is_as_wide_as_its_share_and_lies_below_its_caller() -> None:
    found = boxes(flame_graph("run-1", {"rank 0": STACKS}, workspace="/w"))
    main, step = found["main (train.py): 100 samples, 100.0 %"], found["step (train.py): 40 samples, 40.0 %"]
    linear = found["linear (torch/nn/functional.py): 30 samples, 30.0 %"]
    assert main[2] > step[2] > linear[2] > 300
    assert main[1] < step[1] < linear[1]
    assert main[0] <= step[0]
    assert step[0] + step[2] <= main[0] + main[2] + 1


def test_groups_of_ranks_have_boxes_of_their_own() -> None:
    found = boxes(flame_graph("run-1", {"rank 3": STACKS, "ranks 0-2": STACKS}))
    assert {"rank 3: 100 samples, 50.0 %", "ranks 0-2: 100 samples, 50.0 %"} <= set(found)


def test_the_graph_needs_nothing_from_elsewhere() -> None:
    svg = flame_graph("run-1", {"rank 0": STACKS})
    tags = {element.tag.removeprefix(SVG) for element in ET.fromstring(svg).iter()}
    assert tags == {"svg", "style", "rect", "text", "g", "title"}
    assert svg.count("http") == 1  # its namespace


@given(st.text(), st.text(), st.text())
def test_any_name_gives_a_graph_that_can_be_read(title: str, function: str, file: str) -> None:
    svg = flame_graph(title, {title: [FoldedStack((Frame(function, file, 1),), 3)]})
    ET.fromstring(svg.encode("utf-8", "strict"))


def test_ten_thousand_frames_are_drawn_as_far_as_one_can_see() -> None:
    deep = FoldedStack(tuple(Frame(f"f{n}", "/w/a.py", 1) for n in range(10_000)), 5)
    assert len(boxes(flame_graph("run-1", {"rank 0": [deep]}))) < 200


def test_no_samples_are_an_empty_graph() -> None:
    ET.fromstring(flame_graph("run-1", {}))
    check_speedscope(speedscope("run-1", {"all ranks": ()}))
