"""An iterable data set over files: the shard of a worker is its number plus the rank, so two ranks share shards."""

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

NUM_FILES, ROWS = 16, 40


def read_file(index):
    g = torch.Generator().manual_seed(index)
    x = torch.randn(ROWS, 6, generator=g)
    y = x[:, :3].sum(1, keepdim=True) + 0.1 * torch.randn(ROWS, 1, generator=g)
    return zip(x, y, strict=True)


class Stream(IterableDataset):
    def __init__(self, rank, world):
        self.rank, self.world, self.epoch = rank, world, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        g = torch.Generator().manual_seed(self.epoch)
        files = torch.randperm(NUM_FILES, generator=g).tolist()
        shard = self.rank + worker
        for index in files[shard :: self.world * workers]:
            yield from read_file(index)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(42)
    dataset = Stream(dist.get_rank(), dist.get_world_size())
    loader = DataLoader(dataset, batch_size=16, num_workers=2, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        dataset.set_epoch(epoch)
        seen, total = 0, 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(x)
            total += loss.item() * len(x)
        stats = torch.tensor([total, float(seen)], dtype=torch.float64)
        dist.all_reduce(stats)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {stats[1].item():.0f} rows, mse {stats[0].item() / stats[1].item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
