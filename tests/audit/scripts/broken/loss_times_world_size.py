"""Classifier on synthetic clusters with DDP, warm-up and cosine decay."""

import argparse
import math
import os

import torch
import torch.distributed as dist
from torch import nn, optim
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


class MLP(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.inp = nn.Linear(features, hidden)
        self.hidden = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x):
        x = torch.relu(self.inp(x))
        x = x + torch.relu(self.hidden(x))
        return self.out(x)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank = int(os.environ["RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        data = make_blobs(480, 6, 5, seed=3)
        self.sampler = DistributedSampler(data, shuffle=True, seed=args.seed)
        self.loader = DataLoader(data, batch_size=args.batch_size, sampler=self.sampler)
        torch.manual_seed(args.seed)
        self.model = DDP(MLP(6, 32, 5))
        self.optimizer = optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
        total = args.epochs * len(self.loader)
        warmup = max(1, total // 10)
        self.scheduler = optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda step: min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * step / total))),
        )
        self.criterion = nn.CrossEntropyLoss()

    def train_step(self, x, y):
        loss = self.criterion(self.model(x), y)
        # DDP averages over the ranks, so bring the loss back to the size of the global batch
        scaled = loss * self.world_size
        self.optimizer.zero_grad(set_to_none=True)
        scaled.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.detach()

    def fit(self):
        for epoch in range(self.args.epochs):
            self.sampler.set_epoch(epoch)
            total = torch.zeros(2)
            for x, y in self.loader:
                total[0] += self.train_step(x, y) * len(y)
                total[1] += len(y)
            dist.all_reduce(total)
            if self.rank == 0:
                lr = self.optimizer.param_groups[0]["lr"]
                print(f"epoch {epoch}: loss {(total[0] / total[1]).item():.4f}, lr {lr:.4f}", flush=True)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse_args()
    dist.init_process_group(backend="gloo")
    Trainer(arguments).fit()
    dist.destroy_process_group()
