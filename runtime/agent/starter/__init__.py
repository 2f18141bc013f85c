"""Warm starts: a process that has imported what runs of Python import, and forks them.

    starters = Starters(children, tasks, directory, marks)
    started = await starters.start(argv, env=env, cwd=cwd, output=fd, on_exit=note, wanted=still)

One starter a key (`key.py`) and host agent, at most two. It is a child of the agent, and what it forks is
reparented to the agent, so that a warm rank is watched and ended as any other. In doubt a start is cold.
"""

from .key import WarmRequest, read_request
from .starters import DEFAULT_POLICY, Policy, Started, Starters

__all__ = ["DEFAULT_POLICY", "Policy", "Started", "Starters", "WarmRequest", "read_request"]
