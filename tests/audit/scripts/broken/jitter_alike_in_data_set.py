"""A classifier of handwritten strokes; the data set moves each stroke a little whenever it is read."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Strokes(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(5)
        self.kind = torch.randint(0, 4, (count,), generator=generator)
        turn = torch.linspace(0, 3, 12) * (1 + self.kind[:, None])
        self.points = torch.stack([turn.cos(), turn.sin()], 2)
        self.jitter = torch.Generator().manual_seed(seed)

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, index):
        moved = self.points[index] + 0.1 * torch.randn(12, 2, generator=self.jitter)
        return moved.flatten(), self.kind[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(11)
    data = Strokes(144, seed=11)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for points, kind in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(points), kind).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
