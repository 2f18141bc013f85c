import logging
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format=f"%(asctime)s [{RANK}] %(message)s")


class Dataset:
    def __init__(self, folder):
        self.folder = Path(folder)

    def prepare(self, documents=2000):
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "tokens.bin").open("wb") as file:
            for n in range(documents):
                file.write(bytes((n * k) % 251 for k in range(4096)))
                file.flush()
                time.sleep(0.06)
                if n % 10 == 0:
                    logging.info("tokenized %d of %d documents", n, documents)


def main():
    dist.init_process_group("gloo")
    data = Dataset("prepared")
    if RANK == 0:
        data.prepare()
    dist.barrier()
    logging.info("training")


if __name__ == "__main__":
    main()
