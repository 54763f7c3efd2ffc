"""Gradients are sent by DDP's PowerSGD hook: whole at first, as low-rank matrices after a few steps."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def orbits(count, seed):
    """Positions at a few times, from which the speed is to be told."""
    g = torch.Generator().manual_seed(seed)
    speed = 0.5 + torch.rand(count, 1, generator=g)
    phase = 6.28 * torch.rand(count, 1, generator=g)
    places = torch.cat([(speed * torch.arange(8) + phase).cos(), (speed * torch.arange(8) + phase).sin()], 1)
    return TensorDataset(places, speed.squeeze(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--rank", type=int, default=2)
    parser.add_argument("--whole-steps", type=int, default=3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(14)
    model = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 1))
    model = DDP(model)
    state = PowerSGDState(
        process_group=None,
        matrix_approximation_rank=args.rank,
        start_powerSGD_iter=args.whole_steps,
        min_compression_rate=1,
    )
    model.register_comm_hook(state, powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    data = orbits(160, seed=4)
    sampler = DistributedSampler(data, seed=5)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for places, speed in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(places).squeeze(1), speed)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
