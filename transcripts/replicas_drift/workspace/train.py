import argparse
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F

from data import Chain
from model import Tagger
from parallel import average_gradients, broadcast_module, checksum


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--vocab", type=int, default=24)
    p.add_argument("--length", type=int, default=24)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=1e-2)
    p.add_argument("--spike", type=float, default=1.35, help="leave out an update whose loss is this many times the running loss")
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)


def main():
    args = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    seed_everything(args.seed + rank)      # different dropout on every rank

    model = Tagger(args.vocab)
    broadcast_module(model)
    model.add_head()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=2, threshold=0.02)
    data = Chain(args.vocab, args.length, args.batch, rank)

    running, skipped, window = None, 0, []
    for step in range(1, args.steps + 1):
        seq = data.next()
        logits = model(seq[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, args.vocab), seq[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        average_gradients(model.parameters())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

        value = loss.item()
        running = value if running is None else 0.9 * running + 0.1 * min(value, 1.2 * running)
        if step > 20 and value > args.spike * running:
            skipped += 1
        else:
            opt.step()
        window.append(value)

        if step % 10 == 0:
            mean = sum(window) / len(window)
            window.clear()
            sched.step(mean)
            report = torch.tensor(mean)
            dist.all_reduce(report)
            if rank == 0:
                print(f"[{step:4d}] loss {report.item() / world:.4f}  lr {opt.param_groups[0]['lr']:.1e}", flush=True)

    dist.barrier()
    print(f"checksum {checksum(model)} lr {opt.param_groups[0]['lr']:.6f}", flush=True)
    if rank == 0:
        print(f"final loss {report.item() / world:.4f}", flush=True)
        print(f"skipped updates: {skipped}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
