"""A rank that looks at the clock without a pause, and writes its longest gaps once there is a file `stop`.

A gap is time in which it could have run and did not, for another reason than that others had the processor.
"""

import json
import os
import sys
import threading
import time

LEAST_S = 0.0005


def waited(file):
    """Seconds for which this thread ever waited for a processor."""
    return int(os.pread(file, 100, 0).split()[1]) / 1e9


def stamp(found):
    """Each gap with the wall clock at its end."""
    file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    before = waited(file)
    last = time.perf_counter()
    count = 0
    while True:
        now = time.perf_counter()
        if now - last >= LEAST_S:
            delayed = waited(file)
            found.append((time.time(), max(0.0, now - last - (delayed - before))))
            before = delayed
            now = time.perf_counter()
        last = now
        count += 1
        if count & 0xFFF == 0:
            if os.path.exists("stop"):
                return
            before = waited(file)
            last = time.perf_counter()


def deep(levels, found):
    """As in a training loop, some calls deep."""
    if levels:
        deep(levels - 1, found)
    else:
        stamp(found)


def main():
    if "torch" in sys.argv:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        for _ in range(100):
            dist.all_reduce(torch.ones(8))
    for _ in range(3):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    print("stamping", flush=True)
    found = []
    deep(30, found)
    with open("gaps.json", "w") as file:
        json.dump(sorted(found, key=lambda one: -one[1])[:20_000], file)


if __name__ == "__main__":
    main()
