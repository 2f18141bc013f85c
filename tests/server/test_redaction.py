"""Secrets are taken out of what is kept, and code and paths are left readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.server.redaction import REDACTED, Redactor, secrets_of

redact = Redactor()


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuv python train.py", "hf_abcdefghijklmnopqrstuv"),
        ("the key is sk-proj-abcdefghijklmnop1234567", "sk-proj-abcdefghijklmnop1234567"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        ("Authorization: Bearer abc.def-ghi_jkl==", "abc.def-ghi_jkl=="),
        ("postgres://me:hunter22@db/train", "hunter22"),
        ('{"password": "correct horse"}', "correct horse"),
        ("WANDB_API_KEY: 0123456789abcdef0123", "0123456789abcdef0123"),
        ("aws AKIAIOSFODNN7EXAMPLE here", "AKIAIOSFODNN7EXAMPLE"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----", "MIIE"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE cut off", "MIIE"),
    ],
)
def test_a_secret_is_taken_out(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert REDACTED in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "tokens = tokenizer(text)",
        "max_tokens=4096",
        "token_count: 123456789",
        "key=lambda one: one.rank",
        "KeyError: 'label'",
        "step 3 loss 2.5 tokens/s 120000",
        'File "/home/me/train.py", line 3, in authors',
        "${workspace}/keys.json",
    ],
)
def test_code_and_output_are_left_as_they_are(text: str) -> None:
    assert redact(text) == text


def test_known_values_are_taken_out_wherever_they_stand() -> None:
    env = {
        "MY_API_TOKEN": "a1b2c3d4e5",
        "PATH": "/usr/bin",
        "SHORT_KEY": "abc",
        "SSH_AUTH_SOCK": "/run/agent.1",
    }
    assert secrets_of(env) == ("a1b2c3d4e5",)
    assert Redactor(secrets_of(env))("x=a1b2c3d4e5;") == f"x={REDACTED};"


@given(st.text(max_size=200))
def test_no_text_breaks_it_and_it_is_done_once(text: str) -> None:
    once = redact(text)
    assert isinstance(once, str)
