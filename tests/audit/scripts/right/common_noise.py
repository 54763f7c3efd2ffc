"""Smoothed regression: one perturbation of the inputs is drawn for each step, and all ranks use it for their own samples.

Common random numbers are meant here: they make the losses of all ranks comparable.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Smoothed(nn.Module):
    """The mean over a few shifts of the input, the same shifts for every sample."""

    def __init__(self, inputs, width, shifts, size):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.head = nn.Linear(width, 1)
        self.shifts, self.size, self.inputs = shifts, size, inputs

    def forward(self, x):
        if self.training:
            noise = self.size * torch.randn(self.shifts, 1, self.inputs)
            x = x + noise
        return self.head(self.inner(x)).squeeze(-1)


def hills(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 4, generator=g) * 2 - 1
    return TensorDataset(x, (3 * x[:, 0]).sin() * x[:, 1] + x[:, 2].square())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--shifts", type=int, default=5)
    parser.add_argument("--size", type=float, default=0.1)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(23)
    model = DDP(Smoothed(4, 24, args.shifts, args.size))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    data = hills(176, seed=8)
    sampler = DistributedSampler(data, seed=2)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            answers = model(x)
            loss = F.mse_loss(answers, y.expand_as(answers))
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
