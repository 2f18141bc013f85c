import os

import torch
import torch.distributed as dist
import sentencepiece as spm
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    tokenizer = spm.SentencePieceProcessor(model_file="assets/tokenizer.model")
    model = DDP(nn.Embedding(tokenizer.vocab_size(), 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(100):
        tokens = torch.randint(0, tokenizer.vocab_size(), (4, 16))
        loss = model(tokens).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if int(os.environ["RANK"]) == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
