"""Which names are metrics: nothing else that a program prints or writes is taken for one. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["is_metric", "is_progress", "plausible_time", "values_of"]

# What tells by itself how training goes, as a part of a name: `train_loss`, `val/accuracy`, `acc1`.
_TELLING = re.compile(
    r"^(?:loss(?:es)?|nll|acc(?:uracy)?(?:@?\d+)?|top\d|perplexity|ppl|reward|auc|auroc|bleu|rouge|f1|iou|miou"
    r"|mse|mae|rmse|elbo|wer|cer)$"
)
# What belongs to a step, but tells nothing alone: it may be a setting that is printed once.
_WITH_STEP = re.compile(
    r"^(?:lr|learning_?rate|grad(?:ient)?_?norm|gnorm|grad_norm_\w+|weight_?norm|param_?norm)$"
)
_PART = re.compile(r"[A-Z]?[a-z]+(?:@?\d+)?|[A-Z]+(?:@?\d+)?(?![a-z])|@?\d+")
_NO_METRIC = re.compile(
    r"(?:^|[_/.])(?:fn|func|function|type|name|class|every|interval|steps?|weight|coef\w*)$"
)
_LONGEST = 80


def is_progress(name: str) -> bool:
    """Whether a value of this name alone tells that there was a step: losses, accuracies and the like."""
    if len(name) > _LONGEST or _NO_METRIC.search(name.lower()):
        return False
    parts = re.split(r"[_/.\- ]", name)
    return any(
        _TELLING.match(word.lower()) for part in parts for word in (part, *_PART.findall(part)) if word
    )


def is_metric(name: str) -> bool:
    """Whether the name is that of a metric, if only beside a step or another metric: rates and norms too."""
    last = re.split(r"[/.]", name)[-1].lower().replace("-", "_")
    return is_progress(name) or bool(_WITH_STEP.match(last)) or last.endswith(("_grad_norm", "_lr"))


def values_of(found: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among `found` that are metrics; `epoch` comes along with others."""
    values = {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and is_metric(name)
    }
    epoch = found.get("epoch")
    if values and isinstance(epoch, (int, float)) and math.isfinite(epoch):
        values["epoch"] = float(epoch)
    return values


def plausible_time(value: Any) -> float | None:
    """A Unix time, if it can be one."""
    return float(value) if isinstance(value, (int, float)) and 1e9 < value < 1e10 else None
