import torch


class SoftplusFn(torch.autograd.Function):
    """log(1 + e^x) with a hand-written backward (saves one buffer)."""

    @staticmethod
    def forward(ctx, x):
        e = torch.exp(x)
        ctx.save_for_backward(e)
        return torch.log(1 + e)

    @staticmethod
    def backward(ctx, grad):
        (e,) = ctx.saved_tensors
        return grad * e / (1 + e)


def softplus(x):
    return SoftplusFn.apply(x)


def masked_softmax(scores, lengths):
    """Softmax over dim 1, positions >= length get no weight."""
    pos = torch.arange(scores.shape[1], device=scores.device)[None, :]
    scores = scores.masked_fill(pos >= lengths[:, None], float("-inf"))
    return torch.softmax(scores, dim=1)
