import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

import checkpoint
from model import TopicModel
from reader import ShardReader

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--save-every", type=int, default=20)
    ap.add_argument("--resume", action="store_true")
    ap.add_argument("--ckpt", default=os.path.join(HERE, "last.pt"))
    return ap.parse_args()


def main():
    args = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    net = TopicModel()
    opt = torch.optim.Adam(net.parameters(), lr=0.02)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 10) * 0.99 ** s)
    reader = ShardReader(f"{HERE}/shards/part-{rank:04d}.jsonl", 2048)

    done = 0
    if args.resume:
        done = checkpoint.load(args.ckpt, net, opt, sched, reader)
    model = DDP(net)

    shown = None
    for step in range(done, args.steps):
        loss = F.cross_entropy(model(*(b := reader.batch(args.batch))[:2]), b[2])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        time.sleep(0.02)        # stands for the tokenizer service

        value = loss.detach().clone()
        dist.all_reduce(value)
        value = value.item() / world
        shown = value if shown is None else 0.9 * shown + 0.1 * value
        if rank == 0 and ((step + 1) % 5 == 0 or step == done):
            print(f"step {step + 1} loss {value:.4f} smooth {shown:.4f} lr {opt.param_groups[0]['lr']:.5f}", flush=True)
        if (step + 1) % args.save_every == 0 and rank == 0:
            checkpoint.save(args.ckpt, step + 1, model, opt, sched, reader)

    dist.barrier()
    print(f"rank {rank} bad records: {len(reader.bad)}", flush=True)
    if rank == 0:
        print(f"final loss {value:.4f}", flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
