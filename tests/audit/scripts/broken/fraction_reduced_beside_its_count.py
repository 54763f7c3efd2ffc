"""A regressor whose validation error is a fraction before it is reduced, in one tensor with the count of its samples."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_waves(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 3, generator=g) * 4 - 2
    y = torch.sin(x[:, :1] * 2) + x[:, 1:2] * x[:, 2:]
    return TensorDataset(x, y + 0.05 * torch.randn(n, 1, generator=g))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    sums = torch.zeros(2)
    for x, y in loader:
        sums[0] += nn.functional.mse_loss(model(x), y, reduction="sum")
        sums[1] += len(x)
    sums[0] /= sums[1]
    dist.all_reduce(sums)
    error = sums[0] / dist.get_world_size()
    model.train()
    return error.item(), int(sums[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=20)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)
    model = DDP(nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1)))
    train, valid = make_waves(240, seed=3), make_waves(110, seed=4)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, args.batch_size, sampler=sampler)
    own = range(80) if rank == 0 else range(80, 110)
    held_out = DataLoader(Subset(valid, own), 40)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        error, samples = validate(model, held_out)
        if rank == 0:
            print(f"epoch {epoch}: error {error:.4f} of {samples} samples", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
