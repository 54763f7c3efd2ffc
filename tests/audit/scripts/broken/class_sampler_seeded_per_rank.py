"""Classification with a sampler of the script's own, which shuffles as DistributedSampler and then orders by class."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class OneClassFirst(DistributedSampler):
    """A rank's samples, those of class 0 first in each group of 24."""

    GROUP = 24

    def __init__(self, data, **options):
        super().__init__(data, **options)
        self.labels = data.tensors[1].tolist()

    def __iter__(self):
        every = list(super().__iter__())
        for first in range(0, len(every), self.GROUP):
            yield from sorted(every[first : first + self.GROUP], key=lambda n: self.labels[n] != 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(3)
    labels = torch.randint(0, 3, (240,), generator=g)
    data = TensorDataset(torch.randn(240, 4, generator=g) + nn.functional.one_hot(labels, 4), labels)
    sampler = OneClassFirst(data, seed=args.seed + rank)
    loader = DataLoader(data, batch_size=6, sampler=sampler)
    torch.manual_seed(args.seed)
    model = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
