"""`python -m milkweed.runtime.keeper --mesh ID`, started as a daemon by a client."""

import argparse
import logging

import anyio

from .main import run_keeper


def main() -> None:
    parser = argparse.ArgumentParser(prog="milkweed-keeper")
    parser.add_argument("--mesh", required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    anyio.run(run_keeper, options.mesh)


if __name__ == "__main__":
    main()
