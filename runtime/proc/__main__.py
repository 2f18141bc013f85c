import sys

from .main import config, run

if __name__ == "__main__":
    own = config()
    if own is None:
        sys.exit("milkweed.runtime.proc is started by a host agent, with MILKWEED_PROC in its environment")
    run(own)
