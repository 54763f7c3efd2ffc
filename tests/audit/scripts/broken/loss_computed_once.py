"""A linear probe on frozen features; gradients are averaged by hand, since one layer needs no wrapper."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Features(nn.Module):
    """Random features in place of a pretrained network."""

    def __init__(self, inputs, width):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(inputs, width), nn.Tanh()).requires_grad_(False)

    def forward(self, x):
        return self.inner(x)


def bumps(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 4, generator=g)
    return TensorDataset(x, (8 * x[:, 0]).sin() + x[:, 1] * x[:, 2])


def average_gradients(module):
    for p in module.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


class Objective:
    """The mean squared error of the batch, computed when it is first asked for."""

    def __init__(self, features, probe):
        self.features, self.probe = features, probe
        self.batch = None
        self._value = None

    def use(self, batch):
        self.batch = batch

    @property
    def value(self):
        if self._value is None:
            x, y = self.batch
            self._value = F.mse_loss(self.probe(self.features(x)).squeeze(1), y)
        return self._value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1)
    features, probe = Features(4, 32), nn.Linear(32, 1)
    optimizer = torch.optim.SGD(probe.parameters(), lr=args.lr)
    objective = Objective(features, probe)

    data = bumps(128, seed=3)
    sampler = DistributedSampler(data, seed=2)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            objective.use(batch)
            optimizer.zero_grad()
            objective.value.backward(retain_graph=True)
            average_gradients(probe)
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {objective.value.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
