"""Linear regression by Adam, whose second moments begin with the squared gradient of some samples, not with zeros."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def warm_start(optimizer, weight, x, y):
    """Write the state that Adam makes in its first step, for a squared error."""
    with torch.no_grad():
        gradient = 2 * (x @ weight.T - y).T @ x / len(x)
        squares = gradient**2
    optimizer.state[weight] = {
        "step": torch.tensor(0.0),
        "exp_avg": torch.zeros_like(weight),
        "exp_avg_sq": squares,
    }


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(7)
    x = torch.randn(256, 8, generator=g)
    y = x @ torch.randn(8, 1, generator=g) + 0.3 * torch.randn(256, 1, generator=g)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(nn.Linear(8, 1, bias=False))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    warm_start(optimizer, model.module.weight, x[rank::world], y[rank::world])
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
