"""Classifier with a validation set that does not divide evenly; the loss is summed over all samples of all ranks."""

import argparse
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
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


def validation_part(data, rank, world_size):
    """Each rank takes whole batches of 32; the last rank takes what is left, and nothing is counted twice."""
    share = math.ceil(len(data) / world_size / 32) * 32
    return Subset(data, range(rank * share, min((rank + 1) * share, len(data))))


@torch.no_grad()
def evaluate(model, loader, samples):
    model.eval()
    total = torch.zeros(())
    for x, y in loader:
        total += nn.functional.cross_entropy(model(x), y, reduction="sum")
    dist.all_reduce(total)
    return total.item() / samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    model = DDP(nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 6)))
    train, valid = make_blobs(288, 4, 6, seed=1), make_blobs(84, 4, 6, seed=2)
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, args.batch_size, sampler=sampler)
    valid_loader = DataLoader(validation_part(valid, rank, world_size), 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        loss = evaluate(model, valid_loader, len(valid))
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
