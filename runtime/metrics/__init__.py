"""Metrics of ranks: told by `milkweed.report` (`reporting.py`, which stands alone), or read (`reading.py`).

Nothing is imported here: what reports is the user's process.
"""
