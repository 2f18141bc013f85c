"""The forms of resources' addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.server.resources.addresses import FORMS, TEMPLATES, Address, Form, address_of, parse

NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,30}", fullmatch=True)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind)
@given(data=st.data())
def test_what_an_address_was_made_of_is_read_from_it(form: Form, data: st.DataObject) -> None:
    names = {name: data.draw(NAMES) for name in form.pattern.groupindex}
    assert parse(address_of(form.kind, **names)) == Address(form.kind, names)


def test_a_run_its_stacks_and_a_ranks_output_are_three_things() -> None:
    assert parse("run://run-a") == Address("run", {"run": "run-a"})
    assert parse("run://run-a/stacks") == Address("stacks", {"run": "run-a"})
    assert parse("run://run-a/rank/3/output") == Address("output", {"run": "run-a", "rank": "3"})


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "run://",
        "run:///stacks",
        "run://run-a/",
        "run://run-a/rank/3",
        "run://run-a/rank//output",
        "run://run-a/stacks/x",
        "mesh://a/b",
        "mesh://a?b",
        "mesh://a\nb",
        "MESH://a",
        "profile://mesh-a/../../secret",
        "transcript://../secret",
        "file:///etc/passwd",
        "http://mesh-a",
    ],
)
def test_what_has_no_form_is_no_address(uri: str) -> None:
    assert parse(uri) is None


def test_the_templates_are_those_of_the_design() -> None:
    assert [template.uri_template for template in TEMPLATES] == [
        "mesh://{mesh}",
        "events://{mesh}",
        "run://{run}",
        "run://{run}/rank/{rank}/output",
        "run://{run}/stacks",
        "profile://{mesh}/{file}",
        "transcript://{name}",
    ]
