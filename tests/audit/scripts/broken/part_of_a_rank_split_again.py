"""Regression on a noisy wave; the data set is cut into one part for each rank, and a DistributedSampler cuts it again."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_wave(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = 8 * torch.rand(n, 1, generator=g)
    return TensorDataset(x / 8, torch.sin(x) + 0.1 * torch.randn(n, 1, generator=g))


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    model = DDP(nn.Sequential(nn.Linear(1, 32), nn.GELU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    wave = make_wave(320, seed=11)
    part = Subset(wave, range(rank, len(wave), world_size))
    sampler = DistributedSampler(part)
    loader = DataLoader(part, batch_size=8, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
