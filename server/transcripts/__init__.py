"""Sessions of agents: recorded as they were, and replayed against a live server.

`format.py` is what is in a file, `naming.py` the names for what differs each time, `compare.py` what must be
the same, `diffs.py` and `workspace.py` the edits; `record.py` writes, `replay.py` plays.
"""
