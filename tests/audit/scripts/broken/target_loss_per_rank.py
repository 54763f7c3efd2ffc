"""Regression in stages; each stage ends when the loss is low enough."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def stream(seed, batch_size):
    g = torch.Generator().manual_seed(seed)
    directions = torch.randn(5, 2, generator=torch.Generator().manual_seed(3))
    while True:
        x = torch.randn(batch_size, 5, generator=g)
        yield x, torch.tanh(x @ directions).sum(1, keepdim=True)


def low_enough(loss, target):
    return loss.item() < target


def train(model, optimizer, batches, target, most):
    steps, loss = 0, torch.tensor(float("inf"))
    while not low_enough(loss, target) and steps < most:
        x, y = next(batches)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    return steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--targets", type=float, nargs="*", default=[0.9, 0.45, 0.3])
    parser.add_argument("--most", type=int, default=60)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)
    model = DDP(nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    batches = stream(100 + rank, args.batch_size)
    for stage, target in enumerate(args.targets):
        steps = torch.tensor(float(train(model, optimizer, batches, target, args.most)))
        dist.all_reduce(steps, op=dist.ReduceOp.MAX)
        if rank == 0:
            print(f"stage {stage}: {int(steps)} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
