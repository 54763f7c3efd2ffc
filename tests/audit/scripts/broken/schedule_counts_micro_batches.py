"""A small network is fitted to a surface with gradient accumulation, and a learning rate that falls with its steps."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def surface(number):
    source = torch.Generator().manual_seed(21)
    at = 2 * torch.rand(number, 2, generator=source) - 1
    return TensorDataset(at, (at[:, :1] * at[:, 1:]).sin())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=3)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    samples = surface(576)
    sampler = DistributedSampler(samples)
    loader = DataLoader(samples, 8, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    total = options.epochs * len(loader) // options.accumulate
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=total)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for micro, (at, height) in enumerate(loader, start=1):
            loss = nn.functional.mse_loss(model(at), height) / options.accumulate
            loss.backward()
            if micro % options.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
            schedule.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {options.accumulate * loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
