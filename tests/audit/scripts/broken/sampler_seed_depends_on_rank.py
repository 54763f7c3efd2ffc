"""Residual MLP on clusters, one process per device."""

import argparse
import math
import os
import random

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


class ResidualMLP(nn.Module):
    def __init__(self, features, width, depth, classes, dropout):
        super().__init__()
        self.inp = nn.Linear(features, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Dropout(dropout))
            for _ in range(depth)
        )
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.out(x)


def init_seeds(args, rank):
    args.seed = args.seed + rank
    random.seed(args.seed)
    torch.manual_seed(args.seed)


def get_loader(dataset, args):
    sampler = DistributedSampler(dataset, shuffle=True, seed=args.seed)
    return DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, num_workers=0), sampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=10)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    init_seeds(args, rank)  # different dropout on each rank
    loader, sampler = get_loader(make_blobs(360, 6, 6, seed=99), args)
    model = DDP(ResidualMLP(6, 32, 2, 6, args.dropout))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        if rank == 0:
            print(f"epoch {epoch}: last loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
