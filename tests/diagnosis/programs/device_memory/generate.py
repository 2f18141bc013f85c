import json
import os
import threading

import torch
import torch.distributed as dist
from devices import Accelerator

rank = int(os.environ["RANK"])
failures = []


def decode(device, prompts):
    for n, prompt in enumerate(prompts):
        device.empty(0.4 + prompt / 100)
        print(json.dumps({"rank": rank, "prompt": n, "tokens": prompt}), flush=True)


def worker(device, prompts):
    try:
        decode(device, prompts)
    except Exception as error:
        failures.append(error)


def main():
    dist.init_process_group("gloo")
    device = Accelerator()
    prompts = [700] * 20 if rank == 1 else [100] * 20
    thread = threading.Thread(target=worker, args=(device, prompts), name="decoder")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    done = torch.tensor([len(prompts)])
    dist.all_reduce(done)
    print(json.dumps({"done": done.item()}))


main()
