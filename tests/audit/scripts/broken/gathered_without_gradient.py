"""Contrastive learning on two noisy views; negatives come from all ranks."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Views(Dataset):
    """Pairs of noisy projections of the same hidden point."""

    def __init__(self, n, features, seed):
        g = torch.Generator().manual_seed(seed)
        hidden = torch.randn(n, 4, generator=g)
        first, second = torch.randn(2, 4, features, generator=torch.Generator().manual_seed(0))
        self.a = hidden @ first + 0.3 * torch.randn(n, features, generator=g)
        self.b = hidden @ second + 0.3 * torch.randn(n, features, generator=g)

    def __len__(self):
        return len(self.a)

    def __getitem__(self, i):
        return self.a[i], self.b[i]


class TwoTowers(nn.Module):
    def __init__(self, features, width=16):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, width))
        self.right = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, width))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, a, b):
        return F.normalize(self.left(a), dim=1), F.normalize(self.right(b), dim=1), self.scale.exp()


@torch.no_grad()
def gather(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.cat(parts)


def contrastive_loss(a, b, scale, rank):
    all_a, all_b = gather(a), gather(b)
    labels = rank * len(a) + torch.arange(len(a))
    return 0.5 * (F.cross_entropy(scale * a @ all_b.t(), labels) + F.cross_entropy(scale * b @ all_a.t(), labels))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(1)
    model = DDP(TwoTowers(10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    data = Views(384, 10, seed=3)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            a, b, scale = model(x, y)
            loss = contrastive_loss(a, b, scale, rank)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}, scale {scale.item():.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
