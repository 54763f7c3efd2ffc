"""Cluster classification; accumulates gradients to save communication on a slow network."""

import argparse
import math
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_blobs(n, features, classes, seed):
    """Gaussian clusters on a circle in the first two features; the others are noise."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (n,), generator=g)
    angle = labels * (2 * math.pi / classes)
    x = 0.6 * torch.randn(n, features, generator=g)
    x[:, 0] += 2 * torch.cos(angle)
    x[:, 1] += 2 * torch.sin(angle)
    return TensorDataset(x, labels)


@dataclass
class Config:
    epochs: int = 2
    batch_size: int = 8
    accumulate: int = 3
    lr: float = 0.1
    seed: int = 5


@dataclass
class Progress:
    step: int = 0
    micro: int = 0


def without_sync(model):
    """Also works for a model that is not wrapped."""
    inner = model.module if hasattr(model, "module") else model
    return getattr(inner, "no_sync", nullcontext)()


def train(config):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(config.seed)
    data = make_blobs(432, 8, 4, seed=config.seed)
    sampler = DistributedSampler(data, world, rank, seed=config.seed)
    loader = DataLoader(data, config.batch_size, sampler=sampler, drop_last=True)
    net = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))
    model = DDP(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    progress = Progress()

    for epoch in range(config.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            accumulating = (progress.micro + 1) % config.accumulate != 0
            with without_sync(model) if accumulating else nullcontext():
                loss = nn.functional.cross_entropy(model(x), y)
                (loss / config.accumulate).backward()
            progress.micro += 1
            if progress.micro % config.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
                progress.step += 1
        if rank == 0:
            print(f"epoch {epoch}: {progress.step} steps, loss {loss.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    for name, value in vars(Config()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    config = Config(**vars(parser.parse_args()))
    dist.init_process_group("gloo")
    try:
        train(config)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
