"""What is wrong with a run: rules over collected evidence, each a pure function of a case."""

from .case import Look, RankCase, RunCase
from .deciding import Diagnosis, diagnose
from .finding import Finding, Kind

__all__ = ["Diagnosis", "Finding", "Kind", "Look", "RankCase", "RunCase", "diagnose"]
