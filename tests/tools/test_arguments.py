"""Arguments of a tool: strict, compact in the schema, and explained in our own words."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from milkweed.runtime.errors import InvalidArgument
from milkweed.tools.arguments import Arguments, Why


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    deep: bool = False


async def example(
    call: Any,
    name: Annotated[str, Field(pattern=r"^[a-z]{1,3}$", description="a short name")],
    hosts: Annotated[int, Field(ge=1, le=8), Why("there are no more")] = 1,
    share: Annotated[float, Field(gt=0)] = 0.5,
    mode: Literal["a", "b"] = "a",
    words: str | list[str] | None = None,
    env: dict[str, str] | None = None,
    options: Inner | None = None,
    quiet: bool = False,
) -> None:
    """An example."""


ARGUMENTS = Arguments("example", example)


def refused(**given: Any) -> str:
    with pytest.raises(InvalidArgument) as caught:
        ARGUMENTS.check(given)
    assert caught.value.code == "invalid_argument"
    return str(caught.value)


def test_defaults_are_filled_in() -> None:
    checked = ARGUMENTS.check({"name": "ab"})
    assert checked == {
        "name": "ab",
        "hosts": 1,
        "share": 0.5,
        "mode": "a",
        "words": None,
        "env": None,
        "options": None,
        "quiet": False,
    }


def test_an_integer_serves_as_a_float() -> None:
    assert ARGUMENTS.check({"name": "ab", "share": 2})["share"] == 2.0


def test_a_whole_number_serves_as_an_integer_however_it_is_written() -> None:
    assert ARGUMENTS.check({"name": "ab", "hosts": 2.0})["hosts"] == 2
    assert "got 2.5" in refused(name="ab", hosts=2.5)


def test_null_is_taken_where_it_is_declared_and_refused_elsewhere() -> None:
    assert ARGUMENTS.check({"name": "ab", "env": None})["env"] is None
    assert "hosts must be an integer" in refused(name="ab", hosts=None)
    assert "got null" in refused(name="ab", hosts=None)


def test_null_for_a_required_argument_is_refused() -> None:
    assert "name must be text of the form [a-z]{1,3}, got null" in refused(name=None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"hosts": "two"}, "hosts must be an integer between 1 and 8 (there are no more), got 'two'"),
        ({"hosts": "2"}, "hosts must be an integer between 1 and 8 (there are no more), got '2'"),
        ({"hosts": 9}, "hosts must be an integer between 1 and 8 (there are no more), got 9"),
        ({"hosts": True}, "hosts must be an integer between 1 and 8 (there are no more), got True"),
        ({"share": 0}, "share must be a number above 0, got 0"),
        ({"share": float("nan")}, "share must be a number above 0, got nan"),
        ({"mode": "c"}, "mode must be one of 'a', 'b', got 'c'"),
        ({"words": 3}, "words must be text or a list of texts, got 3"),
        ({"words": ["a", 3]}, "words must be text or a list of texts, got ['a', 3]"),
        ({"env": {"A": 1}}, "env must be an object of texts, got {'A': 1}"),
        ({"options": {"depp": True}}, "options has no 'depp' (did you mean deep), it has deep"),
        ({"options": {"deep": "yes"}}, "options.deep must be true or false, got 'yes'"),
        ({"options": "deep"}, "options must be an object with deep, got 'deep'"),
        (
            {"options": {"deep": 1, "zzzzz": 2}},
            "- options.deep must be true or false, got 1\n- options has no 'zzzzz'",
        ),
        ({"quiet": "yes"}, "quiet must be true or false, got 'yes'"),
        ({"hsots": 2}, "unknown argument 'hsots' (did you mean hosts)"),
        ({"zzzzz": 2}, "unknown argument 'zzzzz'."),
        ({"mode": "x" * 500}, "xxx... (502 characters)"),
    ],
)
def test_a_wrong_argument_is_explained(given: dict[str, Any], told: str) -> None:
    text = refused(name="ab", **given)
    assert told in text
    assert "pydantic" not in text
    assert len(text) < 400


def test_a_missing_argument_is_explained() -> None:
    assert "missing argument 'name' (a short name)" in refused()


def test_each_wrong_argument_has_a_line() -> None:
    text = refused(name="ABC", hosts="two", nonsense=1)
    assert "3 arguments are wrong" in text
    assert [line[:7] for line in text.splitlines()[1:]] == ["- name ", "- hosts", "- unkno"]
    assert "Its arguments: name, hosts, share" in text


def test_the_schema_has_nothing_that_only_costs_tokens() -> None:
    text = str(ARGUMENTS.schema)
    for waste in ("'title'", "$defs", "$ref", "'null'", "'default': None"):
        assert waste not in text
    assert ARGUMENTS.schema["additionalProperties"] is False
    assert ARGUMENTS.schema["required"] == ["name"]


def test_an_argument_may_be_called_title() -> None:
    async def titled(call: Any, title: str) -> None:
        """Has one."""

    assert Arguments("titled", titled).schema["properties"] == {"title": {"type": "string"}}
