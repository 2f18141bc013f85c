"""A transcript as records: JSON Lines, a header and then one step a line (`transcripts/FORMAT.md`). Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from ...runtime.errors import InvalidArgument
from .naming import Names

__all__ = [
    "VERSION",
    "EditStep",
    "ExpectStep",
    "Header",
    "SayStep",
    "ShellStep",
    "Step",
    "ToolStep",
    "Transcript",
    "dump_line",
    "parse",
]

VERSION = 1
_VALUE_NAME = re.compile(r"[a-z]+(?:_[a-z]+)*")
_TAKEN = frozenset({"workspace", "python", "state", "home"})
Bound = float | Annotated[str, Field(pattern=r"^\$\{\w+\}$")]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Header(_Record):
    """`workspace` is the folder beside the file that has the workspace as it was at first; empty: there is
    none. `shape` is that of the first mesh. `values` are names of the transcript's own with what they stand
    for; each of `forms` gives some of them another value."""

    kind: Literal["header"] = "header"
    format: int = VERSION
    milkweed: str = ""
    title: str = ""
    workspace: str = ""
    scheduler: str = "local"
    toolsets: str = "default"
    shape: dict[str, int] = {}
    seed: int = 0
    imported_from: str = ""
    values: dict[str, str] = {}
    forms: dict[str, dict[str, str]] = {}

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        for name in self.values:
            if not _VALUE_NAME.fullmatch(name) or name in _TAKEN:
                raise ValueError(f"{name!r} cannot be the name of a value")
        for form, values in self.forms.items():
            if other := sorted(values.keys() - self.values.keys()):
                raise ValueError(f"the form {form!r} has {other[0]!r}, which is not among the values")
        return self


class ToolStep(_Record):
    """A call and its answer as the agent saw it: `result` where it was structured, else `text`."""

    kind: Literal["tool"] = "tool"
    name: str
    arguments: dict[str, Any] = {}
    text: str = ""
    result: dict[str, Any] | None = None
    is_error: bool = False
    duration_s: float = 0.0


class EditStep(_Record):
    """A change of a file of the workspace: a unified diff, the whole file, or its end."""

    kind: Literal["edit"] = "edit"
    file: str
    diff: str = ""
    text: str | None = None
    deleted: bool = False


class ShellStep(_Record):
    """A command on the client's machine, in the workspace."""

    kind: Literal["shell"] = "shell"
    command: str
    exit: int = 0
    output: str = ""
    duration_s: float = 0.0


class SayStep(_Record):
    """The agent's own words."""

    kind: Literal["say"] = "say"
    text: str


class ExpectStep(_Record):
    """Something that must hold of the last answer: of a field (`first_failure.exception`), or of its text.

    Exactly one of the conditions is given. `at_most` and `at_least` are for numbers, and may be names
    of values; `number` picks the one of the text that is compared, by a pattern with one group.
    """

    kind: Literal["expect"] = "expect"
    field: str = ""
    equals: Any = None
    contains: str | None = None
    matches: str | None = None
    at_most: Bound | None = None
    at_least: Bound | None = None
    number: str = ""


Step = Annotated[ToolStep | EditStep | ShellStep | SayStep | ExpectStep, Field(discriminator="kind")]
_STEP: TypeAdapter[Step] = TypeAdapter(Step)


class Transcript(_Record):
    header: Header
    steps: tuple[Step, ...] = ()

    def in_form(self, form: str) -> Transcript:
        """The steps with the form's values in the place of their names; of edits nothing is changed.

        Args:
            form: empty for the session as it was.

        Raises:
            InvalidArgument: there is no such form, or a step compares with what is no value.
        """
        forms = self.header.forms
        if form and form not in forms:
            known = ", ".join(sorted(forms))
            raise InvalidArgument(
                "invalid_argument",
                f"the transcript has no form {form!r}",
                f"It has: {known}." if known else "It has none: leave --form out.",
            )
        names = Names({**self.header.values, **forms.get(form, {})})
        steps = tuple(_with_values(number, step, names) for number, step in enumerate(self.steps, 1))
        return self.model_copy(update={"steps": steps})


def _with_values(number: int, step: Step, names: Names) -> Step:
    if isinstance(step, EditStep):
        return step
    changed = _STEP.validate_python(names.concrete(step.model_dump()))
    bounds = (changed.at_most, changed.at_least) if isinstance(changed, ExpectStep) else ()
    for bound in bounds:
        if isinstance(bound, str):
            raise _unreadable(
                f"step {number} compares with {bound}, which is not among the values of the header",
                "See transcripts/FORMAT.md.",
            )
    return changed


def dump_line(record: Header | Step) -> str:
    """One line, with its end; what is as by default is left out, but for its kind."""
    fields = {"kind": record.kind, **record.model_dump(mode="json", exclude_defaults=True)}
    if isinstance(record, Header):
        fields["format"] = record.format
    return json.dumps(fields, ensure_ascii=False) + "\n"


def parse(text: str, name: str = "the transcript") -> Transcript:
    """
    Raises:
        InvalidArgument: transcript_unreadable, with the number of the step.
    """
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise _unreadable(f"{name} is empty", "Record one: milkweed serve --record FILE.")
    header = _header(_object(name, *lines[0]), name)
    return Transcript(header=header, steps=tuple(_steps(lines[1:], name, text.endswith("\n"))))


def _header(fields: Mapping[str, Any], name: str) -> Header:
    if fields.get("kind") != "header":
        raise _unreadable(
            f"{name} begins with no header", 'Its first line is {"kind": "header", "format": 1, ...}.'
        )
    version = fields.get("format")
    if not isinstance(version, int) or version > VERSION:
        raise _unreadable(
            f"{name} has format {version!r}; this Milkweed reads up to {VERSION}", "Install a newer Milkweed."
        )
    try:
        return Header.model_validate(fields)
    except ValidationError as error:
        raise _unreadable(f"the header of {name}: {_words(error)}", "See transcripts/FORMAT.md.") from None


def _steps(lines: Iterable[tuple[int, str]], name: str, whole: bool) -> Iterable[Step]:
    lines = list(lines)
    for step, (number, line) in enumerate(lines, 1):
        try:
            yield _STEP.validate_python(_object(name, number, line, step=step))
        except ValidationError as error:
            raise _unreadable(
                f"step {step} of {name} (line {number}): {_words(error)}", "See transcripts/FORMAT.md."
            ) from None
        except InvalidArgument:
            if step == len(lines) and not whole:
                raise _unreadable(
                    f"step {step} of {name} (line {number}) is cut: its recording was ended while it was"
                    " written",
                    "Remove that line.",
                ) from None
            raise


def _object(name: str, number: int, line: str, *, step: int = 0) -> dict[str, Any]:
    where = f"step {step} of {name} (line {number})" if step else f"line {number} of {name}"
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"{where} is no JSON: {error}", "Each line is one object.") from None
    if not isinstance(found, dict):
        raise _unreadable(f"{where} is no object", "Each line is one object.")
    return found


def _words(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _unreadable(cause: str, mend: str) -> InvalidArgument:
    return InvalidArgument("transcript_unreadable", cause, mend)
