# mini style generator with path-length regularisation
import argparse
import math

import torch
import torch.distributed as dist
from torch import autograd, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class G(nn.Module):
    def __init__(self, z=16):
        super().__init__()
        self.mapping = nn.Sequential(nn.Linear(z, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2))
        self.synth = nn.Sequential(nn.Linear(32, 64), nn.Softplus(), nn.Linear(64, 64))

    def forward(self, z, return_latents=False):
        w = self.mapping(z)
        img = self.synth(w).view(-1, 1, 8, 8)
        return (img, w) if return_latents else img


class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x)


def requires_grad(m, flag):
    for p in m.parameters():
        p.requires_grad = flag


def path_regularize(img, latents, mean_path, decay=0.05):
    noise = torch.randn_like(img) / math.sqrt(img.shape[2] * img.shape[3])
    (grad,) = autograd.grad((img * noise).sum(), latents, create_graph=True)
    lengths = grad.pow(2).sum(1).sqrt()
    mean_path = mean_path + decay * (lengths.mean() - mean_path)
    penalty = (lengths - mean_path.detach()).pow(2).mean()
    return penalty, mean_path.detach()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iters", type=int, default=24)
    p.add_argument("--batch", type=int, default=8)
    args = p.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)
    g0 = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(256, 1, 8, 8, generator=g0))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch, sampler=sampler, drop_last=True)

    def cycle():
        e = 0
        while True:
            sampler.set_epoch(e)
            yield from loader
            e += 1

    gen, disc = DDP(G()), DDP(D())
    g_opt = torch.optim.Adam(gen.parameters(), 2e-3, betas=(0.0, 0.99))
    d_opt = torch.optim.Adam(disc.parameters(), 2e-3, betas=(0.0, 0.99))
    mean_path = torch.zeros(())
    it = cycle()
    for i in range(args.iters):
        (real,) = next(it)
        requires_grad(gen, False)
        requires_grad(disc, True)
        fake = gen(torch.randn(args.batch, 16))
        d_loss = F.softplus(-disc(real)).mean() + F.softplus(disc(fake.detach())).mean()
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()

        requires_grad(gen, True)
        requires_grad(disc, False)
        fake, lat = gen(torch.randn(args.batch, 16), return_latents=True)
        g_loss = F.softplus(-disc(fake)).mean()
        pen, mean_path = path_regularize(fake, lat, mean_path)
        g_opt.zero_grad()
        (g_loss + 2.0 * pen).backward()
        g_opt.step()
        if rank == 0 and i % 8 == 0:
            print(i, d_loss.item(), g_loss.item(), mean_path.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
