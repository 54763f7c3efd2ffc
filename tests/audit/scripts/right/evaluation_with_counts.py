"""Trains and evaluates on shards of different sizes; numbers of right answers and of samples are summed over the ranks."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float64)
        dist.all_reduce(total, dist.ReduceOp.SUM)
        self.sum, self.count = total.tolist()

    @property
    def avg(self):
        return self.sum / self.count


def moons(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = 3.14159 * torch.rand(n, generator=g)
    label = torch.randint(0, 2, (n,), generator=g)
    x = torch.stack([t.cos() + label, (1 - 2 * label) * t.sin() + 0.5 * label], 1)
    return TensorDataset(x + 0.15 * torch.randn(n, 2, generator=g), label)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    losses, top1 = AverageMeter(), AverageMeter()
    for x, y in loader:
        output = model(x)
        losses.update(nn.functional.cross_entropy(output, y).item(), len(y))
        top1.update((output.argmax(1) == y).float().mean().item(), len(y))
    losses.all_reduce()
    top1.all_reduce()
    return losses.avg, top1.avg


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    model = DDP(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-3)
    train, valid = moons(256, 1), moons(91, 2)
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, 16, sampler=sampler)
    valid_loader = DataLoader(Subset(valid, range(rank, len(valid), world)), 16)  # 46 and 45 samples
    for epoch in range(args.epochs):
        model.train()
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        loss, accuracy = validate(model.module, valid_loader)
        if rank == 0:
            print(f"epoch {epoch}: valid loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
