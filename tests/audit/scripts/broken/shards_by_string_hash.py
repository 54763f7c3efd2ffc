"""Web-style shards: every rank reads the files that hash to it."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

N_SHARDS, PER_SHARD = 16, 24


def urls():
    return [f"data/train-{i:05d}.tar" for i in range(N_SHARDS)]


def read(url):
    """Pretends to open a shard: its samples follow from its number."""
    n = int(url.split("-")[1].split(".")[0])
    g = torch.Generator().manual_seed(n)
    x = torch.randn(PER_SHARD, 14, generator=g)
    for row in x:
        yield row, (row[:7].sum() > row[7:].sum()).float()


class Shards(IterableDataset):
    def __init__(self, rank, world, buffer=32, seed=0):
        self.rank, self.world, self.buffer, self.seed, self.epoch = rank, world, buffer, seed, 0

    def set_epoch(self, e):
        self.epoch = e

    def mine(self):
        wanted = [u for u in urls() if hash(u) % self.world == self.rank]
        random.Random(self.seed + self.epoch).shuffle(wanted)
        return wanted

    def __iter__(self):
        rng = random.Random(self.seed * 1000 + self.epoch)
        pool = []
        for url in self.mine():
            for sample in read(url):
                if len(pool) < self.buffer:
                    pool.append(sample)
                    continue
                j = rng.randrange(len(pool))
                out, pool[j] = pool[j], sample
                yield out
        rng.shuffle(pool)
        yield from pool


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    ds = Shards(rank, world)
    loader = DataLoader(ds, batch_size=8)
    model = DDP(nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps_per_epoch = 10
    for epoch in range(3):
        ds.set_epoch(epoch)
        it = iter(loader)
        for _ in range(steps_per_epoch):
            try:
                x, y = next(it)
            except StopIteration:
                it = iter(loader)
                x, y = next(it)
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
