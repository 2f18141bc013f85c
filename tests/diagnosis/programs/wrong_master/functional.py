import os
import sys
import threading
import time

import torch
import torch.distributed as dist


def spinner(done):
    while not done.wait(0.25):
        sys.stderr.write("\rwaiting for the others ...")
        sys.stderr.flush()


def meet(env):
    done = threading.Event()
    threading.Thread(target=spinner, args=(done,), daemon=True).start()
    port = int(env["MASTER_PORT"]) if env["RANK"] == "0" else int(env["MASTER_PORT"]) - 1
    store = dist.TCPStore(env["MASTER_ADDR"], port, int(env["WORLD_SIZE"]), env["RANK"] == "0")
    dist.init_process_group("gloo", store=store, rank=int(env["RANK"]), world_size=int(env["WORLD_SIZE"]))
    done.set()


def main():
    print("pid", os.getpid(), time.ctime(), flush=True)
    meet(os.environ)
    x = torch.ones(2)
    dist.all_reduce(x)
    print("sum", x.tolist())


main()
