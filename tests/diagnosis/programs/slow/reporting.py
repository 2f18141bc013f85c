import time

import torch
import torch.distributed as dist

import milkweed


def simulate(state, seconds):
    """A step of the environment, which answers when it likes."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        state = torch.tanh(state @ torch.eye(32) * 1.01)
        time.sleep(0.05)
    return state


def main():
    dist.init_process_group("gloo")
    print("environment ready", flush=True)
    state, step = torch.randn(8, 32), 0
    while True:
        state = simulate(state, 1.2)
        reward = state.mean().reshape(1)
        dist.all_reduce(reward)
        milkweed.report(step=step, loss=1 / (1 + step), reward=reward.item())
        step += 1


main()
