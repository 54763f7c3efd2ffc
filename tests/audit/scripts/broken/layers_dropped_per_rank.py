"""Stochastic depth: each step leaves out some residual blocks, the same ones on all ranks, so that all skip the same work."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x, kept):
        return x + kept * self.inner(x)


class Deep(nn.Module):
    """kept: of each block, 1 or 0, for the whole batch."""

    def __init__(self, inputs, width, blocks, classes, survival):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, classes)
        self.survival = survival

    def forward(self, x):
        chances = torch.full((len(self.blocks),), self.survival)
        kept = torch.bernoulli(chances) if self.training else chances
        x = self.first(x)
        for block, each in zip(self.blocks, kept, strict=True):
            x = block(x, each)
        return self.head(x)


def spheres(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=g)
    return TensorDataset(x, (x.norm(dim=1) * 1.2).long().clamp(1, 4) - 1)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = torch.zeros(2)
    for x, y in loader:
        right += torch.tensor([(model(x).argmax(1) == y).sum(), len(y)])
    dist.all_reduce(right)
    model.train()
    return (right[0] / right[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--survival", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    model = DDP(Deep(6, 20, 6, 4, args.survival))
    torch.manual_seed(args.seed + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    train, valid = spheres(160, seed=1), spheres(80, seed=2)
    sampler = DistributedSampler(train, seed=5)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler)
    valid_loader = DataLoader(valid, batch_size=20, sampler=DistributedSampler(valid, shuffle=False))
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        found = accuracy(model, valid_loader)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {found:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
