"""Speed and size, measured through the same stdio client that an agent uses: `python -m benchmarks.run`."""
