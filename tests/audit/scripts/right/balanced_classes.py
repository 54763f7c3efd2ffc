"""Classes are balanced without replacement; one generator for all ranks, each takes a contiguous block of the global batch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Balanced(Sampler):
    def __init__(self, labels, per_rank, rank, world):
        self.labels, self.per_rank, self.rank, self.world, self.epoch = labels, per_rank, rank, world, 0
        counts = torch.bincount(labels).float()
        self.weights = (1 / counts)[labels]
        self.num = int(counts.min()) * len(counts) // (per_rank * world) * per_rank * world

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        g = torch.Generator().manual_seed(77 + self.epoch)
        order = torch.multinomial(self.weights, self.num, replacement=False, generator=g)
        chunks = order.view(-1, self.world, self.per_rank)[:, self.rank]
        return iter(chunks.flatten().tolist())

    def __len__(self):
        return self.num // self.world


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(700, 6)
    y = (x[:, 0] > 0.8).long()
    sampler = Balanced(y, 8, rank, world)
    loader = DataLoader(TensorDataset(x, y), 8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(8):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            opt.step()
        if rank == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


main()
