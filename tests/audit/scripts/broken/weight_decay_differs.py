"""Random search over hyperparameters with DDP: each trial trains a small MLP."""

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


def sample_trial():
    return {
        "lr": 0.05,
        "momentum": 0.9,
        "weight_decay": 10 ** random.uniform(-4, -1),
    }


def parameter_groups(model, weight_decay):
    """No decay for biases and norms."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def run_trial(trial, data, args, rank):
    torch.manual_seed(args.seed)
    net = nn.Sequential(nn.Linear(6, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 5))
    model = DDP(net)
    groups = parameter_groups(model, trial["weight_decay"])
    optimizer = torch.optim.SGD(groups, lr=trial["lr"], momentum=trial["momentum"])
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(y), len(y)])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    random.seed(args.seed + rank)
    data = make_blobs(240, 6, 5, seed=8)
    best = None
    for number in range(args.trials):
        trial = sample_trial()
        loss = run_trial(trial, data, args, rank)
        if best is None or loss < best[0]:
            best = loss, trial
        if rank == 0:
            print(f"trial {number}: weight decay {trial['weight_decay']:.1e}, loss {loss:.4f}", flush=True)
    if rank == 0:
        print("best", best, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
