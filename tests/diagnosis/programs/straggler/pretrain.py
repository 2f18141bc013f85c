import json
import os
import re
import time

import torch
import torch.distributed as dist

WORDS = "the mesh that a host gives to ranks is theirs until it ends or the lease does".split()
RANK = int(os.environ["RANK"])


class Tokenizer:
    """Falls back to pure Python where the compiled one cannot be loaded."""

    def __init__(self, compiled):
        self.compiled = compiled
        self.ids = {word: i for i, word in enumerate(WORDS)}

    def encode(self, text):
        if self.compiled:
            return [self.ids[word] for word in text.split()]
        found = []
        for _ in range(600):
            found = [self.ids[m.group()] for m in re.finditer(r"[a-z]+", text)]
        return found


class Shards:
    def __init__(self):
        self.tokenizer = Tokenizer(compiled=RANK != 1)
        self.text = " ".join(WORDS * 40)

    def __iter__(self):
        while True:
            yield torch.tensor(self.tokenizer.encode(self.text)[:64])


class Pretrainer:
    def __init__(self):
        dist.init_process_group("gloo")
        self.table = torch.zeros(len(WORDS), 8)

    def step(self, tokens):
        grad = torch.zeros_like(self.table)
        grad.index_add_(0, tokens, torch.randn(64, 8))
        dist.all_reduce(grad)
        self.table -= 0.01 * grad
        return self.table.norm().item()

    def run(self):
        last = time.perf_counter()
        for step, tokens in enumerate(Shards()):
            norm = self.step(tokens)
            now = time.perf_counter()
            if step % 2 == 0:
                record = {"rank": RANK, "step": step, "norm": round(norm, 4), "dt": round(now - last, 4)}
                print(json.dumps(record), flush=True)
            last = now


if __name__ == "__main__":
    Pretrainer().run()
