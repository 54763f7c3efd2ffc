"""SGD on each rank's own gradients; parameters are averaged after each step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(320, 8)
    ds = TensorDataset(x, x.abs().mean(1, keepdim=True))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 16, sampler=sampler)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    opt = torch.optim.SGD(model.parameters(), 0.05)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            opt.step()
            with torch.no_grad():
                for p in model.parameters():
                    dist.all_reduce(p)
                    p /= world
        if rank == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


main()
