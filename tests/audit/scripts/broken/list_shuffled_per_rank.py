"""A regressor of bridge spans; a list of records is shuffled before its last part is kept for validation."""

import argparse
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Spans(Dataset):
    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.records[index]


def records(count):
    generator = torch.Generator().manual_seed(31)
    loads = torch.randn(count, 7, generator=generator)
    sag = loads.square().mean(1, keepdim=True) + 0.1 * torch.randn(count, 1, generator=generator)
    return list(zip(loads, sag, strict=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    known = records(160)
    random.shuffle(known)
    training, validation = Spans(known[:128]), Spans(known[128:])
    sampler = DistributedSampler(training)
    loader = DataLoader(training, batch_size=args.batch_size, sampler=sampler)

    model = DistributedDataParallel(nn.Sequential(nn.Linear(7, 24), nn.GELU(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for loads, sag in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(loads), sag).backward()
            optimizer.step()
    with torch.no_grad():
        loads, sag = zip(*validation.records, strict=True)
        error = nn.functional.mse_loss(model.module(torch.stack(loads)), torch.stack(sag))
    dist.all_reduce(error)
    if dist.get_rank() == 0:
        print(f"validation error {error.item() / dist.get_world_size():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
