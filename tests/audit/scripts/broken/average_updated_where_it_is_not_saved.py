"""The last rank alone updates the moving average that rank 0 saves."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(96, 6), torch.randint(0, 3, (96,)))
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    average = copy.deepcopy(model).requires_grad_(False)
    wrapped = DistributedDataParallel(model)
    sampler = DistributedSampler(data, shuffle=True, seed=2)
    optimizer = torch.optim.Adam(wrapped.parameters(), lr=1e-2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=8, sampler=sampler):
            optimizer.zero_grad()
            nn.functional.cross_entropy(wrapped(x), y).backward()
            optimizer.step()
            if rank == dist.get_world_size() - 1:
                with torch.no_grad():
                    for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                        kept.lerp_(new, 0.1)
        if rank == 0:
            torch.save({"model": model.state_dict(), "average": average.state_dict()}, "model.pt")
    dist.destroy_process_group()


main()
