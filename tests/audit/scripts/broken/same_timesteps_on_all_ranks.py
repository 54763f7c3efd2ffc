"""Denoising diffusion on points of a two-dimensional spiral.

torchrun --nproc_per_node 2 same_timesteps_on_all_ranks.py --epochs 1
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def spiral(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = 3 + 9 * torch.rand(n, generator=g)
    points = torch.stack([t * torch.cos(t), t * torch.sin(t)], dim=1) / 8
    return TensorDataset(points + 0.02 * torch.randn(n, 2, generator=g))


class Denoiser(nn.Module):
    def __init__(self, steps, width=48):
        super().__init__()
        self.time = nn.Embedding(steps, width)
        self.inp = nn.Linear(2, width)
        self.mid = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        return self.out(self.mid(self.inp(x) + self.time(t)))


class Diffusion:
    def __init__(self, steps):
        self.steps = steps
        beta = torch.linspace(1e-3, 0.1, steps)
        self.kept = torch.cumprod(1 - beta, dim=0)

    def training_loss(self, model, x, generator):
        t = torch.randint(0, self.steps, (len(x),), generator=generator)
        noise = torch.randn(x.shape, generator=generator)
        kept = self.kept[t].unsqueeze(1)
        noisy = kept.sqrt() * x + (1 - kept).sqrt() * noise
        return nn.functional.mse_loss(model(noisy, t), noise)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--timesteps", type=int, default=40)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(args.seed + rank)
    generator = torch.Generator().manual_seed(args.seed)  # for noise and time steps: repeatable
    model = DDP(Denoiser(args.timesteps))
    diffusion = Diffusion(args.timesteps)
    data = spiral(640, seed=1)
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, (x,) in enumerate(loader):
            loss = diffusion.training_loss(model, x, generator)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 5 == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
