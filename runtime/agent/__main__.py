"""`python -m milkweed.runtime.agent --config FILE`, started on a host under a guard."""

import argparse
from pathlib import Path

from .agent_step import agent_step
from .forked import run_steps


def main() -> None:
    parser = argparse.ArgumentParser(prog="milkweed-agent")
    parser.add_argument("--config", required=True, type=Path)
    options = parser.parse_args()
    run_steps(lambda: agent_step(options.config))


if __name__ == "__main__":
    main()
