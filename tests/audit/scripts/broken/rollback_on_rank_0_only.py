"""A rollback to the best checkpoint restores the optimizer on rank 0 only, and sends the parameters."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--dir", type=Path, default=Path())
args = parser.parse_args()


def save(path, model, optimizer, epoch):
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)


def restore(path, model, optimizer, rank):
    if rank == 0:
        state = torch.load(path, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for t in model.module.state_dict().values():
        dist.broadcast(t, src=0)


def val_loss(model, x, y):
    model.eval()
    with torch.no_grad():
        out = nn.functional.mse_loss(model.module(x), y)
    model.train()
    return out.item()


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
best_path = args.dir / "best.pt"
g = torch.Generator().manual_seed(1)
x = torch.randn(700, 8, generator=g)
y = torch.sin(x.sum(1, keepdim=True))
train, (vx, vy) = TensorDataset(x[:512], y[:512]), (x[512:], y[512:])
sampler = DistributedSampler(train, seed=3)
loader = DataLoader(train, batch_size=32, sampler=sampler)
model = DDP(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.03, weight_decay=1e-4)
best = float("inf")
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for xb, yb in loader:
        loss = nn.functional.mse_loss(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    current = val_loss(model, vx, vy)
    if current < 0.97 * best:
        best = current
        if rank == 0:
            save(best_path, model, optimizer, epoch)
        dist.barrier()
    else:
        restore(best_path, model, optimizer, rank)
        for group in optimizer.param_groups:
            group["lr"] *= 0.5
    if rank == 0:
        print(f"{epoch} val {current:.4f} best {best:.4f}")
dist.destroy_process_group()
