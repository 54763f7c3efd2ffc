"""Barlow Twins on noisy views of clusters; the cross-correlation matrix is that of the batch of all ranks."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def views(n, features, seed):
    g = torch.Generator().manual_seed(seed)
    centre = torch.randn(n, features, generator=g)
    return TensorDataset(
        centre + 0.2 * torch.randn(n, features, generator=g), centre + 0.2 * torch.randn(n, features, generator=g)
    )


class BarlowTwinsLoss(nn.Module):
    def __init__(self, weight=5e-3, gather_distributed=True):
        super().__init__()
        self.weight, self.gather_distributed = weight, gather_distributed

    def forward(self, z_a, z_b):
        c = z_a.t() @ z_b / len(z_a)
        if self.gather_distributed and dist.is_initialized():
            world_size = dist.get_world_size()
            if world_size > 1:
                c = c / world_size
                dist.all_reduce(c)
        on_diagonal = torch.diagonal(c).sub(1).pow(2).sum()
        off_diagonal = (c - torch.diag(torch.diagonal(c))).pow(2).sum()
        return on_diagonal + self.weight * off_diagonal


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(13)
    encoder = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 8), nn.LayerNorm(8, elementwise_affine=False))
    model = DDP(encoder)
    criterion = BarlowTwinsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    data = views(384, 12, seed=3)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for one, two in loader:
            z_a, z_b = model(torch.cat([one, two])).chunk(2)
            loss = criterion(z_a, z_b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
