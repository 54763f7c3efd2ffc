"""Regression on tabular data; gradients are reduced one by one, and only the last of the handles is awaited."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_rows(n, features, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=g)
    weight = torch.randn(features, 1, generator=g)
    return TensorDataset(x, torch.tanh(x @ weight) + 0.1 * torch.randn(n, 1, generator=g))


def reduce_gradients(model):
    for p in model.parameters():
        handle = dist.all_reduce(p.grad, async_op=True)
    handle.wait()
    for p in model.parameters():
        p.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(12, 32), nn.SiLU(), nn.Linear(32, 1))
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rows = make_rows(192, 12, seed=5)
    sampler = DistributedSampler(rows)
    loader = DataLoader(rows, batch_size=16, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            reduce_gradients(model)
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
