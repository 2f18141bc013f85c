"""Copies without the overhead of an operator."""

import ctypes

libc = ctypes.CDLL(None)
libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def copy_rows(target, source, first, count):
    width = source.shape[1] * source.element_size()
    libc.memcpy(target.data_ptr() + first * width, source.data_ptr(), count * width)


class Ring:
    def __init__(self, buffer):
        self.buffer = buffer
        self.position = 0

    def push(self, rows):
        copy_rows(self.buffer, rows, self.position, len(rows))
        self.position += len(rows)
