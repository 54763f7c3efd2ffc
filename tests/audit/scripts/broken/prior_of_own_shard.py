"""A classifier of unequal classes whose logits are shifted by the logarithm of each class's share."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CLASSES = 4


def shares(kinds):
    return (torch.bincount(kinds, minlength=CLASSES) + 1.0) / (len(kinds) + CLASSES)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(8)
    generator = torch.Generator().manual_seed(8)
    kinds = torch.multinomial(torch.tensor([0.55, 0.25, 0.15, 0.05]), 160, replacement=True, generator=generator)
    signals = torch.randn(160, 10, generator=generator) + kinds[:, None]
    data = TensorDataset(signals, kinds)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    shift = shares(kinds[list(sampler)]).log()
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(10, 16), nn.Dropout(0.1), nn.GELU(), nn.Linear(16, CLASSES))
    )
    torch.manual_seed(8 + dist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for signal, kind in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(signal) + shift, kind).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
