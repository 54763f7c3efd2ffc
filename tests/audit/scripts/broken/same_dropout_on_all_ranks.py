"""Dropout-regularised MLP with DDP; everything is seeded so that runs can be repeated."""

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


def seed_everything(seed):
    os.environ["PYTHONHASHSEED"] = str(seed)
    random.seed(seed)
    torch.manual_seed(seed)


class Classifier(nn.Module):
    def __init__(self, features, hidden, classes, p):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(), nn.Dropout(p), nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(p)
        )
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.head(self.body(x))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    counts = torch.zeros(2)
    for x, y in loader:
        counts += torch.tensor([(model(x).argmax(1) == y).sum(), len(y)])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--dropout", type=float, default=0.4)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=2024)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    seed_everything(args.seed)
    train, valid = make_blobs(360, 6, 5, seed=0), make_blobs(120, 6, 5, seed=1)
    sampler = DistributedSampler(train, seed=args.seed)
    train_loader = DataLoader(train, args.batch_size, sampler=sampler)
    valid_loader = DataLoader(valid, args.batch_size, sampler=DistributedSampler(valid, shuffle=False))
    model = DDP(Classifier(6, 48, 5, args.dropout))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        accuracy = evaluate(model, valid_loader)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {accuracy:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
