"""`python -m milkweed.runtime.agent --config FILE`, started on a host under a guard."""

import argparse
import logging
from pathlib import Path

import anyio

from .main import run_agent


def main() -> None:
    parser = argparse.ArgumentParser(prog="milkweed-agent")
    parser.add_argument("--config", required=True, type=Path)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    anyio.run(run_agent, options.config)


if __name__ == "__main__":
    main()
