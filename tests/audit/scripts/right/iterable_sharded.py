"""A stream of samples that is split over ranks and over the workers of each rank."""

import argparse
import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    """Lines of a log, made as they are read."""

    def __init__(self, length, rank, world_size):
        super().__init__()
        self.length, self.rank, self.world_size = length, rank, world_size
        self.epoch = 0

    def record(self, index):
        g = torch.Generator().manual_seed(1_000_003 * self.epoch + index)
        x = torch.randn(8, generator=g)
        return x, (x.abs().sum() > 6.4).float()

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        first = self.rank * workers + worker
        return (self.record(i) for i in range(first, self.length, self.world_size * workers))


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps-per-epoch", type=int, default=15)
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(99)
    net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
    model = DistributedDataParallel(net, broadcast_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.BCEWithLogitsLoss()
    dataset = Stream(480, rank, world_size)
    loader = DataLoader(dataset, batch_size=12, num_workers=args.workers)
    for epoch in range(args.epochs):
        dataset.epoch = epoch
        running = torch.zeros(())
        for x, y in itertools.islice(loader, args.steps_per_epoch):
            optimizer.zero_grad()
            loss = criterion(model(x).squeeze(1), y)
            loss.backward()
            optimizer.step()
            running += loss.detach()
        dist.all_reduce(running, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch {epoch}: loss {running.item() / args.steps_per_epoch:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
