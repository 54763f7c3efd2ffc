"""Behaviour cloning from shards of recorded steps; all ranks know one schedule of shards, and each takes its own entries."""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class ShardedSteps(IterableDataset):
    def __init__(self, shards, per_shard, draws, rank, world_size, seed):
        g = torch.Generator().manual_seed(seed)
        self.observations = torch.randn(shards, per_shard, 10, generator=g)
        self.actions = torch.tanh(self.observations @ torch.randn(10, 3, generator=g))
        self.draws, self.rank, self.world_size, self.seed = draws, rank, world_size, seed
        self.epoch = 0

    def schedule(self, length):
        rng = np.random.default_rng((self.seed, self.epoch))
        return rng.integers(len(self.observations), size=length)

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        own = self.rank * workers + worker
        rng = np.random.default_rng(self.seed)
        for shard in self.schedule(12 * self.world_size * workers)[own :: self.world_size * workers]:
            for step in rng.permutation(self.observations.shape[1])[: self.draws]:
                yield self.observations[shard, step], self.actions[shard, step]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(17)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    data = ShardedSteps(shards=2, per_shard=64, draws=32, rank=rank, world_size=world_size, seed=42)
    loader = DataLoader(data, args.batch_size)
    for epoch in range(args.epochs):
        data.epoch = epoch
        for observation, action in loader:
            loss = nn.functional.mse_loss(model(observation), action)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
