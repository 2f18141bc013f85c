"""Ranks that hang: all but one wait for an event that the odd one, asleep elsewhere, never sets."""

import os
import threading
import time


def wait_for_go(go):
    go.wait()


def forgotten():
    time.sleep(1 << 20)


def main():
    rank = int(os.environ["RANK"])
    if rank == 7:
        print("rank 7 sleeps, the others wait")
        forgotten()
    wait_for_go(threading.Event())


if __name__ == "__main__":
    main()
