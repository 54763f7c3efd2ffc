"""Offline value learning: all ranks draw one list of transitions, as long as the batches of all, and take turns in it."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TRANSITIONS, BATCH, STEPS = 2048, 24, 40


def transitions() -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(11)
    observed = torch.randn(TRANSITIONS, 10, generator=g)
    action = torch.randint(4, (TRANSITIONS,), generator=g)
    reward = observed[:, 0] * (action == 1) - 0.2 * action
    return [observed, action, reward, torch.randn(TRANSITIONS, 10, generator=g)]


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    values = DDP(nn.Sequential(nn.Linear(10, 48), nn.SiLU(), nn.Linear(48, 4)))
    optimizer = torch.optim.Adam(values.parameters(), lr=2e-3)
    draws = torch.Generator().manual_seed(5)
    data = transitions()
    for number in range(STEPS):
        chosen = torch.randint(TRANSITIONS, (BATCH * world,), generator=draws)[rank::world]
        observed, action, reward, following = (each[chosen] for each in data)
        with torch.no_grad():
            target = reward + 0.9 * values.module(following).max(1).values
        taken = values(observed).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(taken, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            if rank == 0:
                print(f"step {number}: {shown.item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
