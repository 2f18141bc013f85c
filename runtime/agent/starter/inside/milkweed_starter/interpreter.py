"""The interpreter's own configuration, read again from another command line.

That `Py_InitializeFromConfig` on an interpreter that is initialised takes over the new command line is what
`Py_Main` after `Py_Initialize` rests on.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

__all__ = ["offset_of_encoding", "reconfigure"]

_CONFIG_BYTES = 64 * 1024  # far more than any version's PyConfig
_CONFIG_LEAST = 256  # its first part, with the encodings, has had more than that in every version
_NEW = ("argv", "orig_argv")


class _Status(ctypes.Structure):
    """`PyStatus`."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("function", ctypes.c_char_p),
        ("message", ctypes.c_char_p),
        ("exit_code", ctypes.c_int),
    ]


def reconfigure(argv: Sequence[str], offset: int) -> None:
    """From now on the interpreter is one that was started as `argv`; its flags must be those it has.

    Args:
        offset: `offset_of_encoding`.

    Raises:
        RuntimeError: it refuses.
    """
    api = ctypes.pythonapi
    words = [os.fsencode(word) for word in argv]
    config = ctypes.create_string_buffer(_CONFIG_BYTES)
    api.PyConfig_InitPythonConfig.restype = None
    api.PyConfig_InitPythonConfig(config)
    known = dict(vars(sys))
    array = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    api.PyConfig_SetBytesArgv.restype = api.Py_InitializeFromConfig.restype = _Status
    api.PyConfig_SetString.restype = _Status
    # The locale has another name for it than Python, which asks for the codec's name only at the start.
    encoding = ctypes.c_wchar_p(sys.getfilesystemencoding())
    _check(api.PyConfig_SetString(config, ctypes.byref(config, offset), encoding))
    _check(api.PyConfig_SetBytesArgv(config, ctypes.c_ssize_t(len(words)), array))
    _check(api.Py_InitializeFromConfig(config))
    api.PyConfig_Clear.restype = None
    api.PyConfig_Clear(config)
    # Site and imports have changed sys since the start; of the new command line only this is new.
    vars(sys).update({name: value for name, value in known.items() if name not in _NEW})
    sys.path_importer_cache = dict(sys.path_importer_cache)  # the old one is to learn of our script


def offset_of_encoding() -> int:
    """Where `filesystem_encoding` is in this version's PyConfig, beside `filesystem_errors`.

    Raises:
        RuntimeError: it is not found.
    """
    get_config = ctypes.pythonapi._Py_GetConfig
    get_config.restype = ctypes.c_void_p
    live = get_config()
    wanted = (_wide(sys.getfilesystemencoding()), _wide(sys.getfilesystemencodeerrors()))
    readable = _readable_ranges()
    size = ctypes.sizeof(ctypes.c_void_p)
    for offset in range(0, _CONFIG_LEAST, size):
        found = [ctypes.c_void_p.from_address(live + offset + at * size).value or 0 for at in (0, 1)]
        if all(
            any(begin <= address and address + len(text) <= end for begin, end in readable)
            and ctypes.string_at(address, len(text)) == text
            for address, text in zip(found, wanted, strict=True)
        ):
            return offset
    raise RuntimeError("this Python keeps its configuration in another way")


def _wide(text: str) -> bytes:
    return bytes(ctypes.create_unicode_buffer(text))


def _readable_ranges() -> list[tuple[int, int]]:
    ranges = []
    with open("/proc/self/maps", "rb") as file:
        for line in file:
            addresses, rights = line.split()[:2]
            if rights.startswith(b"r") and b"[v" not in line:
                begin, end = addresses.split(b"-")
                ranges.append((int(begin, 16), int(end, 16)))
    return ranges


def _check(status: _Status) -> None:
    if status.type != 0:
        message = (status.message or b"exit").decode(errors="replace")
        raise RuntimeError(f"the interpreter does not take the command line: {message}")
