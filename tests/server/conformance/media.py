"""The smallest image and sound, and resources within answers."""

from __future__ import annotations

import base64
import struct
import zlib

import mcp_types as types

__all__ = ["PNG", "WAV", "embedded"]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


_RED_PIXEL = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    + _chunk(b"IEND", b"")
)
_SILENCE = (
    b"RIFF" + struct.pack("<I", 44) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
) + (b"data" + struct.pack("<I", 8) + b"\x80" * 8)

PNG = types.ImageContent(data=base64.b64encode(_RED_PIXEL).decode(), mime_type="image/png")
WAV = types.AudioContent(data=base64.b64encode(_SILENCE).decode(), mime_type="audio/wav")


def embedded(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(
        resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    )
