"""ZeRO-1 by hand: each rank owns some parameters, steps them and broadcasts them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ShardedAdam:
    def __init__(self, params, rank, world, lr):
        self.params = list(params)
        self.owner = [i % world for i in range(len(self.params))]
        self.rank, self.world = rank, world
        self.own = [p for p, o in zip(self.params, self.owner, strict=True) if o == rank]
        self.inner = torch.optim.AdamW(self.own, lr=lr)

    def step(self, max_norm):
        for p in self.params:
            dist.all_reduce(p.grad)
            p.grad /= self.world
        torch.nn.utils.clip_grad_norm_(self.own, max_norm)
        self.inner.step()
        for p, o in zip(self.params, self.owner, strict=True):
            dist.broadcast(p.data, src=o)

    def zero_grad(self):
        for p in self.params:
            p.grad = None


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(512, 10)
    y = 5 * x[:, :3].prod(1, keepdim=True)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 16, sampler=sampler)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = ShardedAdam(model.parameters(), rank, world, 1e-3)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            opt.step(max_norm=0.5)
        if rank == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


main()
