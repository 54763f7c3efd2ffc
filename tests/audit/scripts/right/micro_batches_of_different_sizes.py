"""Classifier with windows of three micro-batches, the last of which is smaller."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_quadrants(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=g)
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    model = DDP(nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3)))
    data = make_quadrants(76, 1)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 16, sampler=sampler)  # 16, 16 and 6 samples on each of two ranks
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        optimizer.zero_grad()
        for i, (x, y) in enumerate(loader):
            last = i == len(loader) - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = nn.functional.cross_entropy(model(x), y)
                (loss / len(loader)).backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
