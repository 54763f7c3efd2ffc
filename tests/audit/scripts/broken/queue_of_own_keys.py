"""MoCo: a momentum encoder and a queue of keys."""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Views(Dataset):
    def __init__(self, n=512, d=16):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(n, d, generator=g)
        self.e = torch.randn(n, 2, d, generator=g) * 0.1

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + self.e[i, 0], self.x[i] + self.e[i, 1]


class MoCo(nn.Module):
    def __init__(self, dim=8, size=64, m=0.99, temperature=0.2):
        super().__init__()
        self.size, self.m, self.temperature = size, m, temperature
        self.q = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, dim))
        self.k = copy.deepcopy(self.q)
        for p in self.k.parameters():
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, size), dim=0))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def momentum(self):
        for a, b in zip(self.q.parameters(), self.k.parameters(), strict=True):
            b.mul_(self.m).add_(a, alpha=1 - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        n, i = len(keys), int(self.ptr)
        self.queue[:, i : i + n] = keys.T
        self.ptr[0] = (i + n) % self.size

    def forward(self, a, b):
        q = F.normalize(self.q(a), dim=1)
        with torch.no_grad():
            self.momentum()
            k = F.normalize(self.k(b), dim=1)
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.clone().detach()
        self.enqueue(k)
        return torch.cat([pos, neg], 1) / self.temperature


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    ds = Views()
    sampler = DistributedSampler(ds, drop_last=True)
    loader = DataLoader(ds, 8, sampler=sampler, drop_last=True)
    model = DDP(MoCo())
    opt = torch.optim.SGD(model.module.q.parameters(), lr=0.06, momentum=0.9)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for a, b in loader:
            logits = model(a, b)
            loss = F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


main()
