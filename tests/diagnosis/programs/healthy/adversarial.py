"""Translation of points with a critic: its loss goes up and down, that of the translation falls."""

import time

import torch
import torch.distributed as dist
from torch import nn

import milkweed


def networks():
    torch.manual_seed(0)
    return nn.Linear(4, 2), nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


def average(module):
    for p in module.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    generator, critic = networks()
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-2)
    c_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3)
    truth = torch.randn(4, 2)
    torch.manual_seed(rank)
    bce = nn.functional.binary_cross_entropy_with_logits
    step = 0
    while True:
        z = torch.randn(32, 4)
        real, fake = z @ truth, generator(z)
        critic_loss = bce(critic(real), torch.ones(32, 1)) + bce(critic(fake.detach()), torch.zeros(32, 1))
        c_optimizer.zero_grad()
        critic_loss.backward()
        average(critic)
        c_optimizer.step()
        translation_loss = (fake - real).pow(2).mean()
        adversarial_loss = bce(critic(fake), torch.ones(32, 1))
        g_optimizer.zero_grad()
        (translation_loss + 0.01 * adversarial_loss).backward()
        average(generator)
        g_optimizer.step()
        milkweed.report(
            step=step,
            loss=translation_loss.item(),
            critic_loss=critic_loss.item(),
            adversarial_loss=adversarial_loss.item(),
            nan_batches=0,
        )
        step += 1
        if step % 20 == 0:
            print(f"rank {rank}: {step} rounds, killed: 0, lost: 0", flush=True)
        time.sleep(0.01)


main()
