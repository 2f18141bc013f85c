"""Arguments of a tool: its signature as a strict model, a compact JSON schema, and errors in our words."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from ..runtime.errors import InvalidArgument

__all__ = ["Arguments", "Hosts", "JobId", "MeshId", "Ranks", "RunId", "Why"]

MeshId = Annotated[str, Field(description="mesh id, or the name of a live one")]
JobId = Annotated[str, Field(description="job id")]
RunId = Annotated[str, Field(description="run id")]
Ranks = Annotated[str | None, Field(description='such as "0-3,7" or "hosts=0,gpus=0-3"; default: all')]
Hosts = Annotated[str | None, Field(description='such as "0-3,7"; default: all')]


@dataclass(frozen=True, slots=True)
class Why:
    """In an annotation: the reason of a limit, told to whoever oversteps it."""

    reason: str


class Arguments:
    """The arguments that a tool function takes after its `Call`; the model is built at first use."""

    def __init__(self, tool: str, function: Callable[..., Awaitable[Any]]) -> None:
        self._tool = tool
        self._function = function

    @cached_property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        parameters = list(inspect.signature(self._function).parameters.values())[1:]
        return {parameter.name: parameter for parameter in parameters}

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self._function, include_extras=True)

    @cached_property
    def model(self) -> type[BaseModel]:
        """The pydantic model: strict, and with no room for unknown names."""
        fields: dict[str, Any] = {
            name: (self._hints[name], ... if parameter.default is parameter.empty else parameter.default)
            for name, parameter in self._parameters.items()
        }
        return create_model(self._tool, __config__=ConfigDict(extra="forbid", strict=True), **fields)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema without what costs tokens and tells nothing: titles, null branches, `$defs`."""
        full = self.model.model_json_schema()
        compact = _compact(full, full.get("$defs", {}))
        compact.setdefault("properties", {})
        return compact

    def check(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the function. A null is a value, for arguments that are declared to take one:
        clients send it for what JSON cannot say (NaN), and no default is meant by that.

        Raises:
            InvalidArgument: with one line for each wrong argument.
        """
        present = {name: self._as_declared(name, value) for name, value in given.items()}
        try:
            checked = self.model.model_validate(present)
        except ValidationError as error:
            raise self._explain(present, error) from None
        return {name: getattr(checked, name) for name in self._parameters}

    def _as_declared(self, name: str, value: Any) -> Any:
        """JSON does not tell 2.0 from 2: where an integer is asked for, both are one."""
        kind = self.schema["properties"].get(name, {}).get("type")
        return int(value) if isinstance(value, float) and value.is_integer() and kind == "integer" else value

    def _explain(self, given: Mapping[str, Any], error: ValidationError) -> InvalidArgument:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        wrong: dict[str, dict[str, None]] = {}
        for item in found:
            inner = wrong.setdefault(str(item["loc"][0]), {})
            inner.update(dict.fromkeys(str(part) for part in item["loc"][1:2]))
        lines = [line for name, inner in wrong.items() for line in self._explain_some(name, inner, given)]
        told = lines[0] if len(lines) == 1 else "\n- ".join([f"{len(lines)} arguments are wrong", *lines])
        names = ", ".join(self._parameters) or "none"
        return InvalidArgument(
            "invalid_argument", f"{self._tool}: {told}", f"Nothing was done. Its arguments: {names}."
        )

    def _explain_some(self, name: str, inner: Iterable[str], given: Mapping[str, Any]) -> list[str]:
        """Of an object with fields of its own, what is wrong in it; else one line."""
        fields = self.schema["properties"].get(name, {}).get("properties")
        value = given.get(name)
        if not fields or not isinstance(value, dict):
            return [self._explain_one(name, given)]
        return [_explain_field(name, field, fields, value) for field in inner]

    def _explain_one(self, name: str, given: Mapping[str, Any]) -> str:
        schema = self.schema["properties"].get(name)
        if schema is None:
            return f"unknown argument '{name[:60]}'{_suggestion(name, self._parameters)}"
        if name not in given:
            return f"missing argument '{name}' ({schema.get('description', _expectation(schema))})"
        annotations = getattr(self._hints[name], "__metadata__", ())
        reasons = [item.reason for item in annotations if isinstance(item, Why)]
        because = f" ({reasons[0]})" if reasons else ""
        return f"{name} must be {_expectation(schema)}{because}, got {_shown(given[name])}"


def _explain_field(name: str, field: str, fields: Mapping[str, Any], value: Mapping[str, Any]) -> str:
    if field not in fields:
        return f"{name} has no '{field[:60]}'{_suggestion(field, fields)}, it has {', '.join(fields)}"
    if field not in value:
        return f"{name}.{field} is missing"
    return f"{name}.{field} must be {_expectation(fields[field])}, got {_shown(value[field])}"


def _suggestion(name: str, known: Mapping[str, object]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {close[0]})" if close else ""


def _shown(value: object) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def _compact(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return _compact({**target, **rest}, definitions)
    compact: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("title", "$defs") or (key == "default" and value is None):
            continue
        if key == "properties":
            compact[key] = {name: _compact(item, definitions) for name, item in value.items()}
        elif key == "anyOf":
            branches = [_compact(item, definitions) for item in value if item.get("type") != "null"]
            compact.update(branches[0] if len(branches) == 1 else {"anyOf": branches})
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            compact[key] = _compact(value, definitions)
        else:
            compact[key] = value
    return compact


_KINDS = {
    "string": ("text", "texts"),
    "integer": ("an integer", "integers"),
    "number": ("a number", "numbers"),
    "boolean": ("true or false", "true or false"),
    "array": ("a list", "lists"),
    "object": ("an object", "objects"),
}


def _expectation(schema: Mapping[str, Any]) -> str:
    """What an argument of this schema is, in words: `an integer between 1 and 1024`."""
    if "anyOf" in schema:
        return " or ".join(_expectation(item) for item in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(repr(item) for item in schema["enum"])
    if "const" in schema:
        return repr(schema["const"])
    kind = schema.get("type", "")
    words, _ = _KINDS.get(kind, ("a value", "values"))
    inner = schema.get("items") if kind == "array" else schema.get("additionalProperties")
    if "properties" in schema:
        words += f" with {', '.join(schema['properties'])}"
    elif isinstance(inner, Mapping) and inner.get("type") in _KINDS:
        words += f" of {_KINDS[inner['type']][1]}"
    if "pattern" in schema:
        words += f" of the form {schema['pattern'].removeprefix('^').removesuffix('$')}"
    return words + _bounds(schema)


def _bounds(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" between {low:g} and {high:g}"
    parts = [
        f"{word} {limit:g}"
        for word, limit in (("of at least", low), ("above", above), ("at most", high), ("below", below))
        if limit is not None
    ]
    return f" {' and '.join(parts)}" if parts else ""
