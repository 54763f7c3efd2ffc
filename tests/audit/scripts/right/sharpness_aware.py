"""Sharpness-aware minimisation: two backward passes a step, with other parameters in the second."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class SAM:
    def __init__(self, params, base, rho=0.05):
        self.params = list(params)
        self.base = base
        self.rho = rho
        self.saved = None

    @torch.no_grad()
    def ascend(self):
        norm = torch.stack([p.grad.norm() for p in self.params if p.grad is not None]).norm()
        self.saved = [p.clone() for p in self.params]
        for p in self.params:
            if p.grad is not None:
                p.add_(p.grad, alpha=(self.rho / (norm + 1e-12)).item())

    @torch.no_grad()
    def descend(self):
        for p, old in zip(self.params, self.saved, strict=True):
            p.copy_(old)
        self.base.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    x = torch.randn(256, 10)
    y = (x[:, 0] * x[:, 1] > 0).long()
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 2)))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sam = SAM(model.parameters(), base)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            base.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            sam.ascend()
            base.zero_grad()
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            sam.descend()
        loss = loss.detach()
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            print(epoch, loss.item() / dist.get_world_size(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
