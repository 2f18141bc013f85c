"""Hosts and procs that are forked where they would otherwise be executed: quick to start, and sharing pages.

    nursery -> guard -> agent -> procs           (`->`: parent of)
                          `-> starter, forks procs, which become the agent's children

Every agent forks a starter of procs before it has a thread or a loop; it waits, computes nothing, and ends
with the agent. Where many hosts are asked for at once, a nursery imports what they all need, forks a guard
and an agent for each, and ends: so that all hosts of a mesh, and their procs, share what was imported. A
process that is forked here looks to the kernel and to whoever reads /proc as if it was executed.
"""

from .starter import ForkedStarter, Forks, fork_starter
from .steps import Step, run_steps

__all__ = ["ForkedStarter", "Forks", "Step", "fork_starter", "run_steps"]
