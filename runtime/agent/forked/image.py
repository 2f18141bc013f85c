"""What a forked process looks like, and what it takes for its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ... import _native

__all__ = ["Image", "image_of", "take_image"]

_kept: list[object] = []


class Image(NamedTuple):
    """As `_native.take_image` wants it, and the variables for `os.environ`."""

    arguments: bytes
    variables: bytes
    env: dict[bytes, bytes]


def image_of(argv: Sequence[str], env: Mapping[str, str]) -> Image:
    pairs = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    variables = b"".join(name + b"=" + value + b"\0" for name, value in pairs.items())
    return Image(b"".join(os.fsencode(word) + b"\0" for word in argv), variables, pairs)


def take_image(image: Image) -> None:
    """
    Raises:
        OSError: the kernel does not allow it.
    """
    _native.take_image(image.arguments, image.variables)
    _kept.append(os.environ._data)  # type: ignore[attr-defined]  # noqa: SLF001 - to free it is to write to it all
    os.environ._data = os.environb._data = image.env  # type: ignore[attr-defined]  # noqa: SLF001
