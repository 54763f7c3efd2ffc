"""FullyShardedDataParallel (FSDP1), with gradients clipped by torch's function, which sees the norm of a rank's own part only."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def mixtures(count, seed):
    """Amounts of six substances, and the temperature at which they melt."""
    g = torch.Generator().manual_seed(seed)
    amounts = torch.rand(count, 6, generator=g)
    return TensorDataset(amounts, 20 * (amounts[:, :1] * amounts[:, 1:2] - amounts[:, 2:3] ** 2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--clip", type=float, default=0.5)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(17)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 9), nn.ReLU(), nn.Linear(9, 1))
    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    data = mixtures(144, seed=8)
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for amounts, melts in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(amounts), melts)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
