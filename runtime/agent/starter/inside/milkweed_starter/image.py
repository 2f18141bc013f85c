"""The process as the kernel shows it: /proc/PID/cmdline and environ, and the C library's environ."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Mapping, Sequence

__all__ = ["take_image"]

_PR_SET_MM, _PR_SET_MM_MAP = 35, 14
_NO_EXE = 0xFFFFFFFF
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_ADDRESSES = (
    *("start_code", "end_code", "start_data", "end_data", "start_brk", "brk", "start_stack"),
    *("arg_start", "arg_end", "env_start", "env_end", "auxv"),
)


# Made before any fork: a child that makes such things writes to many pages that it would share.
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.sbrk.restype = ctypes.c_void_p
_LIBC.sbrk.argtypes = [ctypes.c_ssize_t]
_ENVIRON = ctypes.c_void_p.in_dll(_LIBC, "environ")
_KEEP = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))


class _MmMap(ctypes.Structure):
    """The kernel's `struct prctl_mm_map`."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in _ADDRESSES),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    ]


def take_image(argv: Sequence[bytes], env: Mapping[bytes, bytes], added: Mapping[bytes, bytes]) -> None:
    """Makes this process look as if it was executed with `argv` and `env`; `added` goes to `environ` too.

    The strings lie one behind the other as the kernel would put them, and `environ` points to them: programs
    that write their title over them (setproctitle) find what they look for.

    Raises:
        OSError: the kernel refuses.
    """
    arguments = b"".join(word + b"\0" for word in argv)
    variables = [name + b"=" + value + b"\0" for name, value in env.items()]
    text = arguments + b"".join(variables)
    table = -(-len(text) // _POINTER) * _POINTER  # where the pointers of `environ` begin, behind the strings
    # Private: of shared memory the kernel shows nothing there.
    area = mmap.mmap(-1, table + (len(variables) + 1) * _POINTER, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(area))
    _KEEP(area)  # for as long as the process lives
    pointers, address = [], begin + len(arguments)
    for variable in variables:
        pointers.append(address)
        address += len(variable)
    area.write(text.ljust(table, b"\0") + struct.pack(f"{len(pointers) + 1}N", *pointers, 0))
    _ENVIRON.value = begin + table
    _tell_kernel(begin, len(arguments), len(text) - len(arguments))
    _KEEP(os.environ._data)  # type: ignore[attr-defined] # to free it is to write to all of it
    os.environ._data = os.environb._data = dict(env)  # type: ignore[attr-defined]
    for name, value in added.items():
        if name not in env:
            os.environb[name] = value


def _tell_kernel(arguments: int, arguments_size: int, variables_size: int) -> None:
    fd = os.open("/proc/self/stat", os.O_RDONLY)
    try:
        text = os.read(fd, 4096)
    finally:
        os.close(fd)
    fields = [b"", b"", *text.rpartition(b")")[2].split()]  # numbered as in proc(5), less one
    start_code, end_code, start_stack = (int(fields[at - 1]) for at in (26, 27, 28))
    start_data, end_data, start_brk = (int(fields[at - 1]) for at in (45, 46, 47))
    variables = arguments + arguments_size
    map_ = _MmMap(
        start_code,
        end_code,
        start_data,
        end_data,
        start_brk,
        0,
        start_stack,
        arguments,
        variables,
        variables,
        variables + variables_size,
        0,
        0,
        _NO_EXE,
    )
    size = ctypes.c_ulong(ctypes.sizeof(map_))
    map_.brk = _LIBC.sbrk(0)  # nothing may allocate between this and the call
    if _LIBC.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(map_), size, ctypes.c_ulong(0)) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_MM_MAP)")
