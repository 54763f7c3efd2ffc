"""Class weights of each rank's own part of the data; gradients are averaged in one flat buffer."""

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Subset, TensorDataset


def load():
    rng = np.random.default_rng(21)
    y = rng.choice(4, size=900, p=[0.6, 0.25, 0.1, 0.05])
    order = np.argsort(y + rng.normal(scale=1.0, size=900), kind="stable")
    y = y[order]
    x = rng.normal(size=(900, 12)) + np.eye(12)[y] * 2
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class Averager:
    def __init__(self, model):
        self.params = [p for p in model.parameters() if p.requires_grad]
        for p in self.params:
            dist.broadcast(p.data, 0)

    def __call__(self):
        flat = torch.cat([p.grad.flatten() for p in self.params])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, g in zip(self.params, flat.split([p.numel() for p in self.params]), strict=True):
            p.grad.copy_(g.view_as(p))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    x, y = load()
    per_rank = len(x) // world
    mine = Subset(TensorDataset(x, y), range(rank * per_rank, (rank + 1) * per_rank))
    loader = DataLoader(mine, batch_size=30, shuffle=True)
    labels = torch.stack([mine[i][1] for i in range(len(mine))])
    counts = torch.bincount(labels, minlength=4).float()
    class_weights = counts.sum() / (4 * counts.clamp(min=1))
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
    average = Averager(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for epoch in range(4):
        for xb, yb in loader:
            optimizer.zero_grad()
            losses = nn.functional.cross_entropy(model(xb), yb, reduction="none")
            loss = (losses * class_weights[yb]).mean()
            loss.backward()
            average()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
