"""The actor runtime beside torchmonarch and a bare lower bound: `python -m benchmarks.runtime [line ...]`.

One program for all sides a line (`lines/`), each side in an interpreter of its own (`child.py`), which answer
by turns (`contestant.py`): ours, Monarch's, the bare one's, ours ...
"""
