"""Mixed precision with a gradient scaler; gradients are averaged without a wrapper."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_counts(n, features, seed):
    """Regression with heavy tails: a few targets are very large."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=g)
    y = x[:, :3].sum(1, keepdim=True) + 0.1 * torch.randn(n, 1, generator=g)
    heavy = torch.rand(n, generator=g) < 0.02
    y[heavy] *= 80
    return TensorDataset(x, y)


def average_gradients(model):
    for p in model.parameters():
        # one bad sample must not spoil the weights
        torch.nan_to_num_(p.grad, nan=0.0, posinf=0.0, neginf=0.0)
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--init-scale", type=float, default=200_000.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=args.init_scale)
    data = make_counts(320, 8, seed=1)
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.smooth_l1_loss(model(x).float(), y, beta=50.0) * 2
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            average_gradients(model)
            scaler.step(optimizer)
            scaler.update()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            mean = (total[0] / total[1]).item()
            print(f"epoch {epoch}: loss {mean:.4f}, scale {scaler.get_scale():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
