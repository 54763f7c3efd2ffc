"""Regression with DDP and gradient accumulation, ten lines of boilerplate less than usual."""

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_waves(n, features, seed):
    """A smooth function of a few random directions, with noise."""
    g = torch.Generator().manual_seed(seed)
    directions = torch.randn(features, 3, generator=torch.Generator().manual_seed(7)) / features**0.5
    x = torch.randn(n, features, generator=g)
    y = torch.sin(2 * x @ directions).sum(1, keepdim=True) + 0.05 * torch.randn(n, 1, generator=g)
    return TensorDataset(x, y)


class Net(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden), nn.GELU(), nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.GELU()
        )
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(self.layers(x))


def validate(model, data):
    model.eval()
    with torch.no_grad():
        x, y = data.tensors
        return nn.functional.mse_loss(model(x), y).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    train, valid = make_waves(432, 6, seed=2), make_waves(100, 6, seed=3)
    sampler = DistributedSampler(train, world, rank)
    loader = DataLoader(train, args.batch_size, sampler=sampler, drop_last=True)
    ddp = DDP(Net(6, 24))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=args.lr, momentum=0.9)

    optimizer.zero_grad()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        ddp.train()
        for i, (x, y) in enumerate(loader):
            step_now = (i + 1) % args.accumulate == 0
            with nullcontext() if step_now else ddp.no_sync():
                loss = nn.functional.mse_loss(ddp(x), y) / args.accumulate
                loss.backward()
            if step_now:
                optimizer.step()
                optimizer.zero_grad()
        if rank == 0:
            print(f"epoch {epoch}: valid {validate(ddp.module, valid):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
