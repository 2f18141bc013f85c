from .checksums import WeightChecksums
from .logs import Logs

__all__ = ["Logs", "WeightChecksums"]
