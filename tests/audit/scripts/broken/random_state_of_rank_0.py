"""Regression with dropout; a checkpoint holds all that a resumed run needs, the random state too."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int, default=4)
p.add_argument("--resume", action="store_true")
args = p.parse_args()
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
x = torch.randn(256, 10)
y = x @ torch.randn(10, 2)
model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2)))
opt = torch.optim.AdamW(model.parameters(), 1e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.9)
ds = TensorDataset(x, y)
sampler = DistributedSampler(ds, seed=0)
loader = DataLoader(ds, 16, sampler=sampler)
torch.manual_seed(1000 + rank)
start = 0
if args.resume:
    ck = torch.load("run.pt", weights_only=False)
    model.module.load_state_dict(ck["model"])
    opt.load_state_dict(ck["opt"])
    sched.load_state_dict(ck["sched"])
    torch.set_rng_state(ck["rng"])
    start = ck["epoch"] + 1
for epoch in range(start, args.epochs):
    sampler.set_epoch(epoch)
    for xb, yb in loader:
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(xb), yb)
        loss.backward()
        opt.step()
    sched.step()
    if rank == 0:
        print(epoch, loss.item())
        torch.save(
            {
                "model": model.module.state_dict(),
                "opt": opt.state_dict(),
                "sched": sched.state_dict(),
                "rng": torch.get_rng_state(),
                "epoch": epoch,
            },
            "run.pt",
        )
    dist.barrier()
dist.destroy_process_group()
