"""GAN on a two-dimensional ring of Gaussians, with two networks and two optimizers."""

import argparse
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def ring(n, seed):
    g = torch.Generator().manual_seed(seed)
    angle = 2 * math.pi * torch.randint(0, 8, (n,), generator=g) / 8
    centres = torch.stack([torch.cos(angle), torch.sin(angle)], dim=1)
    return TensorDataset(centres + 0.05 * torch.randn(n, 2, generator=g))


def mlp(inputs, outputs, hidden=32):
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(hidden, outputs),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--latent", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(args.seed)
    generator = DDP(mlp(args.latent, 2))
    discriminator = mlp(2, 1)
    torch.manual_seed(args.seed + 1 + rank)
    opt_g = torch.optim.Adam(generator.parameters(), lr=args.lr, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(discriminator.parameters(), lr=args.lr, betas=(0.5, 0.9))
    data = ring(512, seed=7)
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, (real,) in enumerate(loader):
            z = torch.randn(len(real), args.latent)
            fake = generator(z).detach()
            d_loss = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake)).mean()
            opt_d.zero_grad()
            d_loss.backward()
            opt_d.step()

            z = torch.randn(len(real), args.latent)
            g_loss = F.softplus(-discriminator(generator(z))).mean()
            opt_g.zero_grad()
            g_loss.backward()
            opt_g.step()
            if rank == 0 and step % 5 == 0:
                print(f"epoch {epoch} step {step}: D {d_loss.item():.3f} G {g_loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
