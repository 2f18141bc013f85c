import sys

from .main import place, run

if __name__ == "__main__":
    own = place()
    if own is None:
        sys.exit("milkweed.runtime.proc is started by a host agent, with MILKWEED_PROC in its environment")
    run(own)
