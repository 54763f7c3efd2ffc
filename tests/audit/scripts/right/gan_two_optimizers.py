"""A GAN on a ring of points: two wrapped networks and two optimizers, stepped in turn."""

import math

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

nz, batch_size, num_epochs, lr, beta1 = 4, 16, 2, 2e-3, 0.5


def ring(n):
    g = torch.Generator().manual_seed(9)
    angle = torch.randint(0, 8, (n,), generator=g) * (2 * math.pi / 8)
    return TensorDataset(torch.stack([angle.cos(), angle.sin()], 1) + 0.02 * torch.randn(n, 2, generator=g))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(nz, 24), nn.ReLU(True), nn.Linear(24, 2))

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(2, 24), nn.LeakyReLU(0.2, inplace=True), nn.Linear(24, 1))

    def forward(self, x):
        return self.main(x).view(-1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(999)
    net_g, net_d = DDP(Generator()), DDP(Discriminator())
    torch.manual_seed(999 + 1 + rank)
    criterion = nn.BCEWithLogitsLoss()
    optimizer_d = torch.optim.Adam(net_d.parameters(), lr=lr, betas=(beta1, 0.999))
    optimizer_g = torch.optim.Adam(net_g.parameters(), lr=lr, betas=(beta1, 0.999))
    dataset = ring(256)
    sampler = DistributedSampler(dataset)
    dataloader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
    for epoch in range(num_epochs):
        sampler.set_epoch(epoch)
        for (real,) in dataloader:
            b = real.size(0)
            # (1) discriminator: log D(x) + log(1 - D(G(z)))
            net_d.zero_grad()
            criterion(net_d(real), torch.ones(b)).backward()
            fake = net_g(torch.randn(b, nz))
            criterion(net_d(fake.detach()), torch.zeros(b)).backward()
            optimizer_d.step()
            # (2) generator: log D(G(z))
            net_g.zero_grad()
            criterion(net_d(fake), torch.ones(b)).backward()
            optimizer_g.step()
        if rank == 0:
            print(f"[{epoch}/{num_epochs}]", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
