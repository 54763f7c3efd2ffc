"""A batch norm over all ranks, written by hand for backends without SyncBatchNorm."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dfn
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class GlobalBatchNorm(nn.Module):
    def __init__(self, n, eps=1e-5, momentum=0.1):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))
        self.register_buffer("mean", torch.zeros(n))
        self.register_buffer("var", torch.ones(n))
        self.eps, self.momentum = eps, momentum

    def forward(self, x):
        if self.training:
            w = dist.get_world_size()
            mean = dfn.all_reduce(x.mean(0)) / w
            var = dfn.all_reduce(x.var(0, unbiased=False)) / w
            with torch.no_grad():
                self.mean.lerp_(mean, self.momentum)
                self.var.lerp_(var, self.momentum)
        else:
            mean, var = self.mean, self.var
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(512, 10) + torch.arange(512)[:, None] * 0.01
    y = x[:, :1].abs() + 0.1 * x[:, 1:2]
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(10, 16), GlobalBatchNorm(16), nn.ReLU(), nn.Linear(16, 1)))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad(set_to_none=True)
            loss = nn.functional.smooth_l1_loss(model(xb), yb)
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, float(loss))
    dist.destroy_process_group()


main()
