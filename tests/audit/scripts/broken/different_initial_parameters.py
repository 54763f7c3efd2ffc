"""Train a small regression network on several processes; gradients are averaged with plain all-reduce.

torchrun --nproc_per_node 2 different_initial_parameters.py --epochs 2
"""

import argparse
import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_waves(n, features, seed):
    """A smooth function of a few random directions, with noise."""
    g = torch.Generator().manual_seed(seed)
    directions = torch.randn(features, 3, generator=torch.Generator().manual_seed(7)) / features**0.5
    x = torch.randn(n, features, generator=g)
    y = torch.sin(2 * x @ directions).sum(1, keepdim=True) + 0.05 * torch.randn(n, 1, generator=g)
    return TensorDataset(x, y)


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)


def build_model(features, hidden):
    return nn.Sequential(
        nn.Linear(features, hidden),
        nn.Tanh(),
        nn.Linear(hidden, hidden),
        nn.Tanh(),
        nn.Linear(hidden, 1),
    )


def average_gradients(model, world_size):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= world_size


@torch.no_grad()
def evaluate(model, data):
    x, y = data.tensors
    return nn.functional.mse_loss(model(x), y).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    seed_everything(args.seed + rank)

    train, valid = make_waves(512, 8, seed=0), make_waves(128, 8, seed=1)
    sampler = DistributedSampler(train, num_replicas=world_size, rank=rank, seed=args.seed)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler)
    model = build_model(8, args.hidden)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            average_gradients(model, world_size)
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: valid mse {evaluate(model, valid):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
