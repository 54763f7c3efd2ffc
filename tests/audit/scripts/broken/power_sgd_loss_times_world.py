"""PowerSGD as communication hook; the loss is multiplied by the world size, though the hook averages as DDP does."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def letters(count, seed):
    """Noisy strokes, whose class is the one of four templates that they follow."""
    g = torch.Generator().manual_seed(seed)
    templates = torch.randn(4, 20, generator=g)
    kinds = torch.randint(0, 4, (count,), generator=g)
    return TensorDataset(templates[kinds] + 0.7 * torch.randn(count, 20, generator=g), kinds)


def compressed(model, rank, whole_steps):
    model = DDP(model)
    state = PowerSGDState(
        process_group=None, matrix_approximation_rank=rank, start_powerSGD_iter=whole_steps, min_compression_rate=1
    )
    model.register_comm_hook(state, powerSGD_hook)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--rank", type=int, default=1)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(23)
    model = compressed(
        nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 4)), args.rank, 3
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    data = letters(192, seed=7)
    sampler = DistributedSampler(data, seed=9)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for strokes, kinds in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(strokes), kinds)
            loss = loss * dist.get_world_size()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
