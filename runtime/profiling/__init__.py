"""Where the time of ranks goes: what hosts sampled, read here, judged elsewhere."""

from .folded import FoldedStack, parse_folded
from .records import ProfileRequest, RankProfile, TorchProfile
from .torch_trace import TorchOp, read_trace

__all__ = [
    "FoldedStack",
    "ProfileRequest",
    "RankProfile",
    "TorchOp",
    "TorchProfile",
    "parse_folded",
    "read_trace",
]
