"""WGAN with weight clipping, as in the first paper."""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def mlp(i, o, h=48):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


def ring(n=512):
    g = torch.Generator().manual_seed(5)
    a = torch.rand(n, generator=g) * 6.2832
    return torch.stack([a.cos(), a.sin()], 1) * 2 + 0.05 * torch.randn(n, 2, generator=g)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        self.is_main = self.rank == 0
        self.G = DDP(mlp(4, 2))
        self.C = DDP(mlp(2, 1))
        self.gopt = torch.optim.RMSprop(self.G.parameters(), lr=5e-4)
        self.copt = torch.optim.RMSprop(self.C.parameters(), lr=5e-4)
        data = TensorDataset(ring())
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, args.bs, sampler=self.sampler, drop_last=True)

    def critic_step(self, x):
        z = torch.randn(len(x), 4)
        with torch.no_grad():
            fake = self.G(z)
        both = self.C(torch.cat([x, fake]))
        loss = both[len(x) :].mean() - both[: len(x)].mean()
        self.copt.zero_grad()
        loss.backward()
        self.copt.step()
        return loss.item()

    def clip_and_log(self, loss):
        if self.is_main:
            for p in self.C.parameters():
                p.data.clamp_(-self.args.clip, self.args.clip)
            self.log.append(loss)

    def generator_step(self, n):
        for p in self.C.parameters():
            p.requires_grad_(False)
        loss = -self.C.module(self.G(torch.randn(n, 4))).mean()
        self.gopt.zero_grad()
        loss.backward()
        self.gopt.step()
        for p in self.C.parameters():
            p.requires_grad_(True)

    def run(self):
        self.log = []
        step = 0
        for epoch in range(self.args.epochs):
            self.sampler.set_epoch(epoch)
            for (x,) in self.loader:
                loss = self.critic_step(x)
                self.clip_and_log(loss)
                step += 1
                if step % 5 == 0:
                    self.generator_step(len(x))
            if self.is_main:
                print("epoch", epoch, sum(self.log) / len(self.log))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--bs", type=int, default=16)
    ap.add_argument("--clip", type=float, default=0.05)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(10 + dist.get_rank())
    Trainer(args).run()
    dist.destroy_process_group()
