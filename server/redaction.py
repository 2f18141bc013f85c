"""Secrets in text that is kept or shown to others: found by their forms and by their names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = ["REDACTED", "Redactor", "secrets_of"]

REDACTED = "[redacted]"
_NAMES = r"[\w.-]*(?:key|token|secret|passw(?:or)?d|passphrase|credential|auth|cookie)s?"
_FORMS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    # As documented by those who give them out: GitHub, Hugging Face, OpenAI, Anthropic, AWS, Slack, Google.
    re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{22,}|hf_[A-Za-z0-9]{20,})\b"),
    re.compile(r"\b(?:sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[\w-]{35})"),
    re.compile(r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}"),  # a JSON web token
)
_BEARER = re.compile(r"(\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{12,}", re.IGNORECASE)
_IN_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+(?=@)", re.IGNORECASE)
_NAMED = re.compile(
    rf"(?P<before>(?<![\w.-]){_NAMES}(?P<quote>[\"']?)\s*[:=]\s*)(?P<value>\"[^\"\n]{{4,}}\"|'[^'\n]{{4,}}'|[^\s\"',;]{{8,}})",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
_LEAST = 8


def secrets_of(env: Mapping[str, str]) -> tuple[str, ...]:
    """Values of variables whose names say that they are secret."""
    return tuple(
        value
        for name, value in env.items()
        if _SECRET_NAME.search(name) and len(value) >= _LEAST and "/" not in value
    )


class Redactor:
    """Takes out what has the form of a secret, what stands behind the name of one, and the `known` ones."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        every = sorted(filter(None, known), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, every))) if every else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        for form in _FORMS:
            text = form.sub(REDACTED, text)
        text = _BEARER.sub(rf"\1{REDACTED}", text)
        text = _IN_URL.sub(rf"\1{REDACTED}", text)
        return _NAMED.sub(_without_value, text)


def _without_value(found: re.Match[str]) -> str:
    value = found["value"]
    quote = value[0] if value[0] in "\"'" else ""
    plain = value.strip("\"'")
    # Code and settings that name no secret: a call, a variable, a number, or nothing.
    if not quote and (plain.replace(".", "").isdigit() or re.search(r"[()\[\]{}$]", plain)):
        return found[0]
    if plain.lower() in {"none", "true", "false", "null"}:
        return found[0]
    return f"{found['before']}{quote}{REDACTED}{quote}"
