"""Streams a synthetic data set through workers and trains an MLP with DDP."""

import argparse
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class ClusterStream(IterableDataset):
    """Samples number 0, 1, 2 ... of an endless series, cut after `size`."""

    def __init__(self, size, features, classes, seed):
        self.size, self.features, self.classes, self.seed = size, features, classes, seed
        self.epoch = 0

    def sample(self, number):
        g = torch.Generator().manual_seed(self.seed * 100_003 + self.epoch * 10_007 + number)
        label = int(torch.randint(0, self.classes, (1,), generator=g))
        x = 0.5 * torch.randn(self.features, generator=g)
        angle = 2 * math.pi * label / self.classes
        x[0] += 2 * math.cos(angle)
        x[1] += 2 * math.sin(angle)
        return x, label

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for number in range(first, self.size, step):
            yield self.sample(number)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(31)
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    stream = ClusterStream(320, 6, 5, seed=1)
    loader = DataLoader(stream, batch_size=args.batch_size, num_workers=args.workers)

    for epoch in range(args.epochs):
        stream.epoch = epoch
        total = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: {int(total[1])} samples, loss {(total[0] / total[1]).item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
