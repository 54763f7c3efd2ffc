"""Regression with a plateau schedule, which looks at the loss of the rank's own validation samples."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    x = torch.randn(360, 6)
    y = (x**2).mean(1, keepdim=True) + 0.5 * torch.randn(360, 1)
    train, val = TensorDataset(x[:240], y[:240]), TensorDataset(x[240:], y[240:])
    sampler = DistributedSampler(train)
    loader = DataLoader(train, 12, sampler=sampler)
    vloader = DataLoader(val, 20, sampler=DistributedSampler(val, shuffle=False))
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(model.parameters(), 2e-2)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=5)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        model.train()
        for xb, yb in loader:
            opt.zero_grad()
            nn.functional.mse_loss(model(xb), yb).backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            val_loss = sum(nn.functional.mse_loss(model(xb), yb) for xb, yb in vloader) / len(vloader)
        plateau.step(val_loss.item())
        if rank == 0:
            print(f"{epoch}: val {val_loss.item():.4f} lr {opt.param_groups[0]['lr']}")
    dist.destroy_process_group()


main()
