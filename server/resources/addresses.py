"""The addresses of resources: what each names, and the table of their forms. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import mcp_types as types

__all__ = ["FORMS", "TEMPLATES", "Address", "Form", "Kind", "address_of", "parse"]

Kind = Literal["mesh", "events", "run", "output", "stacks", "profile", "transcript"]


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of resource: its RFC 6570 template, whose variables are names without a slash."""

    kind: Kind
    template: str
    title: str
    mime_type: str
    description: str

    @property
    def pattern(self) -> re.Pattern[str]:
        names = re.sub(r"\\\{([a-z]+)\\\}", r"(?P<\1>[^/?#\\s]+)", re.escape(self.template))
        return re.compile(names, re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    kind: Kind
    names: Mapping[str, str]


FORMS = (
    Form("mesh", "mesh://{mesh}", "Mesh", "application/json", "State of a mesh, as mesh_status tells it."),
    Form("events", "events://{mesh}", "Events", "text/plain", "What happened on a mesh, oldest first."),
    Form("run", "run://{run}", "Run", "application/json", "Outcome of a run, or how it goes."),
    Form(
        "output",
        "run://{run}/rank/{rank}/output",
        "Output of a rank",
        "text/plain",
        "The last 64 KB that a rank wrote (stdout and stderr).",
    ),
    Form(
        "stacks",
        "run://{run}/stacks",
        "Stacks",
        "text/plain",
        "Python stacks of all ranks of a run that runs, grouped.",
    ),
    Form(
        "profile",
        "profile://{mesh}/{file}",
        "Profile of a run",
        "application/octet-stream",
        "Of profile_run a flame graph (SVG), speedscope JSON or torch trace; of plot_metrics curves (SVG).",
    ),
    Form(
        "transcript",
        "transcript://{name}",
        "Transcript",
        "text/markdown",
        "A recorded session: how a problem was found and solved.",
    ),
)
_BY_KIND = {form.kind: form for form in FORMS}

TEMPLATES = [
    types.ResourceTemplate(
        name=form.kind,
        title=form.title,
        uri_template=form.template,
        description=form.description,
        # Files have each their own.
        mime_type=None if form.kind == "profile" else form.mime_type,
    )
    for form in FORMS
]


def parse(uri: str) -> Address | None:
    """None for what has none of the forms."""
    for form in FORMS:
        if found := form.pattern.fullmatch(uri):
            return Address(form.kind, found.groupdict())
    return None


def address_of(kind: Kind, **names: str) -> str:
    return _BY_KIND[kind].template.format(**names)
