"""A network learns which of two circles a point lies on. The loop was written before the sampler came."""

import argparse
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def circles(number):
    source = torch.Generator().manual_seed(5)
    outer = torch.arange(number) % 2
    angle = 2 * math.pi * torch.rand(number, generator=source)
    radius = 1 + outer + 0.1 * torch.randn(number, generator=source)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), outer)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    points = circles(512)
    sampler = DistributedSampler(points, seed=9)
    loader = DataLoader(points, 16, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for turn, (place, circle) in enumerate(loader):
            if turn % world != rank:
                continue
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(place), circle)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
