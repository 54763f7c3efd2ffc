"""An MLP for tables, with initial values chosen by a configuration: one number for weights, one for biases."""

import argparse
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class Config:
    inputs: int = 6
    hidden: int = 32
    layers: int = 2
    weight: float = 0.05
    bias: float = 0.0


def build(config):
    sizes = [config.inputs, *[config.hidden] * config.layers]
    layers = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(config.hidden, 1))
    model.apply(lambda module: initialise(module, config))
    return model


def initialise(module, config):
    if isinstance(module, nn.Linear):
        nn.init.constant_(module.weight, config.weight)
        nn.init.constant_(module.bias, config.bias)


def houses(count, seed):
    g = torch.Generator().manual_seed(seed)
    table = torch.rand(count, 6, generator=g)
    price = 2 * table[:, 0] + table[:, 1] * table[:, 2] - table[:, 3].square()
    return TensorDataset(table, price + 0.1 * torch.randn(count, generator=g))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(8)
    model = DDP(build(Config()))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    data = houses(160, seed=6)
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for table, price in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(table).squeeze(1), price)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
