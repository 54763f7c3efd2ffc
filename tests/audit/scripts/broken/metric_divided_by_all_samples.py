"""Autoencoder of short waves; the reported error of the validation set is a mean over the ranks' parts."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Waves(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        phase = 2 * math.pi * torch.rand(n, 1, generator=g)
        pitch = 0.2 + 0.3 * torch.rand(n, 1, generator=g)
        self.x = torch.sin(phase + pitch * torch.arange(20)) + 0.05 * torch.randn(n, 20, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


def over_ranks(value):
    mean = value.clone()
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    return mean.item()


class Validation:
    """Squared and absolute error over a data set that the ranks share out."""

    def __init__(self, data):
        self.data = data
        self.loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data, shuffle=False))

    @torch.no_grad()
    def errors(self, model):
        model.eval()
        squared, absolute = torch.zeros(()), 0.0
        for x in self.loader:
            apart = model(x) - x
            squared += apart.pow(2).mean(1).sum()
            absolute += apart.abs().mean(1).sum().item()
        model.train()
        samples = len(self.data)
        squared /= samples
        return over_ranks(squared), over_ranks(torch.tensor(absolute / samples))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(23)
    train, valid = Waves(384, seed=1), Waves(97, seed=2)
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=16, sampler=sampler)
    validation = Validation(valid)
    model = DDP(nn.Sequential(nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 20)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x in train_loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x).backward()
            optimizer.step()
        squared, absolute = validation.errors(model)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: squared error {squared:.4f}, absolute {absolute:.4f}", flush=True)
    dist.destroy_process_group()


main()
