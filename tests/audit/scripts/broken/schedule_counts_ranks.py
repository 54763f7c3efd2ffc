"""Trains a denoiser for a fixed number of steps, with a learning rate that falls linearly to its end value."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class PreparedScheduler:
    """Steps the scheduler once for each process, as every process reads a batch of its own."""

    def __init__(self, scheduler, num_processes):
        self.scheduler, self.num_processes = scheduler, num_processes

    def step(self):
        for _ in range(self.num_processes):
            self.scheduler.step()


def frames(n, seed):
    g = torch.Generator().manual_seed(seed)
    clean = torch.sin(torch.linspace(0, 6, 16) * (1 + torch.rand(n, 1, generator=g)))
    return TensorDataset(clean + 0.3 * torch.randn(n, 16, generator=g), clean)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(5)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = PreparedScheduler(
        LinearLR(optimizer, start_factor=1.0, end_factor=0.1, total_iters=args.steps), world_size
    )
    data = frames(384, seed=2)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    step = epoch = 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        for noisy, clean in loader:
            loss = nn.functional.mse_loss(model(noisy), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            if step == args.steps:
                break
        epoch += 1
    if rank == 0:
        print(f"loss {loss.item():.4f}, learning rate {optimizer.param_groups[0]['lr']:.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
