"""Gradients that are constant by nature: the absolute error on a fixed grid, far from its minimum, and the bias of a sum.

The inputs are the grid's places, the same for every sample; targets differ. The offset is a model of one number. The head begins
at zero, as where a pretrained network gets a new one.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Profile(nn.Module):
    """Temperatures at fixed heights: one offset, one slope for each basis function."""

    def __init__(self, places, functions):
        super().__init__()
        steps = torch.arange(1, functions + 1)
        self.register_buffer("basis", torch.cos(torch.linspace(0, 1, places)[:, None] * steps) + 2.0)
        self.offset = nn.Parameter(torch.zeros(1))
        self.slopes = nn.Linear(functions, 1)
        nn.init.zeros_(self.slopes.weight)

    def forward(self, count):
        return (self.slopes(self.basis).squeeze(1) + self.offset).expand(count, -1)


class Risk(nn.Module):
    """A second model on the samples themselves; its loss is linear in the bias of the head."""

    def __init__(self, places):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(places, 12), nn.Tanh())
        self.head = nn.Linear(12, 3)
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        return self.head(self.body(x))


def soundings(count, places, seed):
    g = torch.Generator().manual_seed(seed)
    base = 15 + 2 * torch.rand(count, 1, generator=g)
    return TensorDataset(base - torch.linspace(0, 6, places) + 0.3 * torch.randn(count, places, generator=g))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(2)
    profile, risk = DDP(Profile(16, 12)), DDP(Risk(16))
    profiles = torch.optim.SGD(profile.parameters(), lr=1e-3)
    risks = torch.optim.SGD(risk.parameters(), lr=1e-3)

    data = soundings(160, 16, seed=1)
    sampler = DistributedSampler(data, seed=5)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            profiles.zero_grad()
            off = (profile(len(x)) - x).abs().mean()
            off.backward()
            profiles.step()
            risks.zero_grad()
            scores = risk(x)
            (scores * torch.tensor([1.0, -0.5, 0.25])).sum(1).mean().backward()
            risks.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {off.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
