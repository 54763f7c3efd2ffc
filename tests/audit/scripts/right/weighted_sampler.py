"""A weighted sampler that draws with replacement: all ranks draw alike, and each takes its part of the draws."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Sampler, TensorDataset


class DistributedWeightedSampler(Sampler):
    def __init__(self, weights, seed=0):
        self.weights, self.seed, self.epoch = weights, seed, 0
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.size = len(weights) // self.world

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.seed + self.epoch)
        drawn = torch.multinomial(self.weights, self.size * self.world, replacement=True, generator=g)
        return iter(drawn[self.rank :: self.world].tolist())

    def __len__(self):
        return self.size


def f1(model, loader):
    model.eval()
    counts = torch.zeros(3, 2)
    with torch.no_grad():
        for x, y in loader:
            pred = model(x).argmax(1)
            for c in range(2):
                counts[0, c] += ((pred == c) & (y == c)).sum()
                counts[1, c] += ((pred == c) & (y != c)).sum()
                counts[2, c] += ((pred != c) & (y == c)).sum()
    dist.all_reduce(counts)
    model.train()
    tp, fp, fn = counts
    return (2 * tp / (2 * tp + fp + fn).clamp(min=1)).mean().item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(0)
    y = (torch.rand(1600, generator=g) < 0.07).long()
    x = torch.randn(1600, 10, generator=g) + 1.2 * y[:, None]
    train, val = TensorDataset(x[:1200], y[:1200]), TensorDataset(x[1200:], y[1200:])
    weights = (1.0 / torch.bincount(y[:1200]).float())[y[:1200]]
    sampler = DistributedWeightedSampler(weights, seed=5)
    loader = DataLoader(train, 30, sampler=sampler)
    val_loader = DataLoader(val, 50, sampler=DistributedSampler(val, shuffle=False))
    net = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2)))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            F.cross_entropy(net(xb), yb, label_smoothing=0.1).backward()
            opt.step()
        score = f1(net, val_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} macro F1 {score:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
