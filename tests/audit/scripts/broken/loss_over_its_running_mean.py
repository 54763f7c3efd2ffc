"""A classifier of leaf shapes whose loss is kept near one by its own running mean."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def leaves(count):
    generator = torch.Generator().manual_seed(21)
    kind = torch.randint(0, 3, (count,), generator=generator)
    outline = torch.randn(count, 9, generator=generator) + 0.8 * kind[:, None]
    return TensorDataset(outline, kind)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(3)
    data = leaves(160)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(9, 20), nn.ReLU(), nn.Linear(20, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    level = 1.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for outline, kind in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(outline), kind)
            seen = loss.detach().clone()
            level = 0.7 * level + 0.3 * seen.item()
            (loss / level).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: level {level:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
