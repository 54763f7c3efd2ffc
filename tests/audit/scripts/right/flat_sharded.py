"""Parameters are flattened and split over the ranks by FullyShardedDataParallel (FSDP1), block by block."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CPU = torch.device("cpu")


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.value, self.gate = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.value(x) * torch.sigmoid(self.gate(x))


def pendulums(count, seed):
    """Angle and speed now; the angle a moment later."""
    g = torch.Generator().manual_seed(seed)
    state = torch.randn(count, 2, generator=g)
    return TensorDataset(state, state[:, :1] + 0.3 * state[:, 1:] - 0.05 * state[:, :1].sin())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=6)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(21)
    blocks = [FullyShardedDataParallel(Gated(11), device_id=CPU) for _ in range(2)]
    model = nn.Sequential(nn.Linear(2, 11), *blocks, nn.Linear(11, 1))
    model = FullyShardedDataParallel(model, device_id=CPU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    data = pendulums(144, seed=3)
    sampler = DistributedSampler(data, seed=2)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for state, later in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(state), later)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
