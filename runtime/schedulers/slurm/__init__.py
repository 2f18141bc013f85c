"""Hosts from Slurm: one batch job a mesh, which starts the host's command once on each of its nodes."""

from .scheduler import SlurmScheduler

__all__ = ["SlurmScheduler"]
