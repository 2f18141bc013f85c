"""Prints lines at a steady rate: `flood.py MEGABYTES_PER_SECOND`, until it is ended."""

import os
import sys
import time

PERIOD_S = 0.01
LINE = b"%09d " + b"x" * 89 + b"\n"


def main():
    chunk = int(float(sys.argv[1]) * 1e6 * PERIOD_S)
    lines = chunk // 100
    written = 0
    due = time.monotonic()
    while True:
        data = b"".join(LINE % (written + at) for at in range(lines))
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]
        written += lines
        due += PERIOD_S
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
