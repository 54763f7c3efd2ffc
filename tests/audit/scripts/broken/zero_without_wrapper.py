"""Image patches and a small convolutional net; ZeroRedundancyOptimizer shares the optimizer's state out over the ranks."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 12, 3, padding=1, stride=2), nn.GELU()
        )
        self.head = nn.Linear(12, classes)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def stripes(count, seed):
    """Patches with stripes in one of four directions."""
    g = torch.Generator().manual_seed(seed)
    direction = torch.randint(0, 4, (count,), generator=g)
    angle = direction * 0.785
    y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    waves = torch.sin(1.5 * (angle.cos()[:, None, None] * x + angle.sin()[:, None, None] * y))
    return TensorDataset((waves + 0.3 * torch.randn(count, 8, 8, generator=g))[:, None], direction)


def start_alike(model):
    """All ranks begin with rank 0's parameters."""
    for p in model.parameters():
        dist.broadcast(p.data, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(2)
    model = Net(4)
    start_alike(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=args.lr)

    data = stripes(160, seed=1)
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for patches, direction in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(patches), direction)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
