"""Autoencoder that grows: a second layer is added to encoder and decoder after some epochs."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_curves(n, length, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, length)
    a, f = torch.rand(n, 1, generator=g) + 0.5, 1 + 2 * torch.rand(n, 1, generator=g)
    return TensorDataset(a * torch.sin(6.28 * f * t) + 0.05 * torch.randn(n, length, generator=g))


class GrowingAutoencoder(nn.Module):
    def __init__(self, length, code):
        super().__init__()
        self.code = code
        self.encoder = nn.Sequential(nn.Linear(length, code))
        self.decoder = nn.Sequential(nn.Linear(code, length))

    def grow(self):
        extra = nn.Linear(self.code, self.code)
        nn.init.eye_(extra.weight)
        nn.init.zeros_(extra.bias)
        self.encoder = nn.Sequential(*self.encoder, nn.Tanh(), extra)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--grow-at", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(2)
    data = make_curves(256, 24, seed=5)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    model = DDP(GrowingAutoencoder(24, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        if epoch == args.grow_at:
            known = set(model.parameters())
            model.module.grow()
            optimizer.add_param_group({"params": [p for p in model.parameters() if p not in known]})
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for (x,) in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), x)
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: reconstruction error {(total[0] / total[1]).item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
