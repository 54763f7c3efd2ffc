"""A GAN with a penalty on the critic's gradient; the critic takes two steps for one of the generator."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

LATENT = 6


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, o))


def penalty(critic, real, fake):
    t = torch.rand(len(real), 1)
    mixed = (t * real + (1 - t) * fake).requires_grad_()
    grad = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
    return ((grad.norm(dim=1) - 1) ** 2).mean()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(30)
    angle = torch.rand(320) * 6.2832
    data = TensorDataset(torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(320, 2))
    generator, critic = DDP(mlp(LATENT, 2)), DDP(mlp(2, 1))
    torch.manual_seed(300 + rank)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    step = 0
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for (real,) in loader:
            with torch.no_grad():
                fake = generator(torch.randn(len(real), LATENT))
            score = critic(torch.cat([real, fake]))
            loss_c = score[len(real) :].mean() - score[: len(real)].mean()
            loss_c = loss_c + 10 * penalty(critic.module, real, fake)
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
            step += 1
            if step % 2 == 0:
                critic.requires_grad_(False)
                loss_g = -critic.module(generator(torch.randn(16, LATENT))).mean()
                opt_g.zero_grad()
                loss_g.backward()
                opt_g.step()
                critic.requires_grad_(True)
        mean = loss_c.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch}: critic {mean.item() / dist.get_world_size():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
