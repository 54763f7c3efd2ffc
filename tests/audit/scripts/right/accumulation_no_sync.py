"""Gradient accumulation under no_sync. The last window of an epoch is smaller, and divides by its own size."""

import argparse
import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def spirals(n, seed):
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(0, 3, (n,), generator=g)
    radius = torch.rand(n, generator=g)
    angle = 4 * radius + 2.1 * label + 0.2 * torch.randn(n, generator=g)
    return TensorDataset(torch.stack([radius * angle.sin(), radius * angle.cos()], 1), label)


def train_epoch(model, loader, optimizer, accumulate):
    total = len(loader)
    for i, (x, y) in enumerate(loader):
        first = i // accumulate * accumulate
        window = min(accumulate, total - first)
        last = i == first + window - 1
        with contextlib.nullcontext() if last else model.no_sync():
            loss = F.cross_entropy(model(x), y) / window
            loss.backward()
        if last:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(42)
    model = DDP(nn.Sequential(nn.Linear(2, 24), ResidualBlock(24), ResidualBlock(24), nn.Linear(24, 3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    data = spirals(224, seed=5)  # 14 batches for each of two ranks
    sampler = DistributedSampler(data, shuffle=True, seed=11)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_epoch(model, loader, optimizer, args.accumulate)
    if dist.get_rank() == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
