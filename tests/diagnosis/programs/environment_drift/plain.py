import torch
import torch.distributed as dist
import tokenlib
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TEXTS = ["a mesh of hosts", "a rank of a run", "what is left behind"]


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Embedding(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        rows = tokenlib.encode_batch(TEXTS)
        tokens = torch.tensor([(row * 4)[:32] for row in rows])
        loss = model(tokens).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


main()
