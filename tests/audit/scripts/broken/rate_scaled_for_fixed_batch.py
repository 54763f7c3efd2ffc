"""Trains with a fixed global batch and the linear scaling rule."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=32, help="total over all processes")
    p.add_argument("--lr", type=float, default=0.05, help="learning rate for --batch-size")
    p.add_argument("--warmup", type=int, default=10)
    p.add_argument("--epochs", type=int, default=3)
    return p.parse_args()


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(6)
    x = torch.randn(512, 18, generator=g)
    y = (x[:, :9].norm(dim=1) > x[:, 9:].norm(dim=1)).long()
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size // world, sampler=sampler, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 2)))
    lr = args.lr * world
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / args.warmup))
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
        if rank == 0:
            print(f"{epoch} {loss.item():.4f} lr {opt.param_groups[0]['lr']:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
