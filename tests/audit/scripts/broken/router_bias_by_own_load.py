"""Aux-loss-free balanced routing (the bias of an overloaded expert is lowered after each step)."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Router(nn.Module):
    def __init__(self, dim, n_experts, top_k, speed):
        super().__init__()
        self.gate = nn.Linear(dim, n_experts, bias=False)
        self.top_k = top_k
        self.speed = speed
        self.expert_bias = torch.zeros(n_experts)
        self.load = torch.zeros(n_experts)

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        _, chosen = (scores + self.expert_bias).topk(self.top_k, dim=-1)
        weights = scores.gather(-1, chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        with torch.no_grad():
            self.load += torch.bincount(chosen.flatten(), minlength=len(self.load)).float()
        return chosen, weights

    @torch.no_grad()
    def rebalance(self):
        self.expert_bias += self.speed * torch.sign(self.load.mean() - self.load)
        self.load.zero_()


class Block(nn.Module):
    def __init__(self, dim=24, n_experts=6, top_k=2):
        super().__init__()
        self.router = Router(dim, n_experts, top_k, speed=0.02)
        self.w1 = nn.Parameter(torch.randn(n_experts, dim, 48) * 0.1)
        self.w2 = nn.Parameter(torch.randn(n_experts, 48, dim) * 0.1)

    def forward(self, x):
        chosen, weights = self.router(x)
        every = torch.einsum("neh,ehd->ned", F.silu(torch.einsum("nd,edh->neh", x, self.w1)), self.w2)
        picked = every.gather(1, chosen.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        return x + (picked * weights.unsqueeze(-1)).sum(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(10, 24)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        h = self.inp(x)
        for b in self.blocks:
            h = b(h)
        return self.out(h).squeeze(-1)


def waves(n=640):
    x = torch.randn(n, 10, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, torch.sin(x).sum(1))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    data = waves()
    sampler = DistributedSampler(data, seed=100)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    torch.manual_seed(0)
    model = DDP(Net())
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            for b in model.module.blocks:
                b.router.rebalance()
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()
