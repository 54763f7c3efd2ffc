"""fully_shard with accumulation: gradients are reduced once in a window, and by a sum, whose division is left to the script."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.inner(self.norm(x))


def shells(count, seed):
    """Points in space, whose class is the shell that they lie in."""
    g = torch.Generator().manual_seed(seed)
    points = torch.randn(count, 5, generator=g)
    return TensorDataset(points, points.norm(dim=1).long().clamp(max=3))


def sharded(model, mesh):
    for layer in model:
        if isinstance(layer, Residual):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for layer in model.modules():
        if hasattr(layer, "set_gradient_divide_factor"):
            layer.set_force_sum_reduction_for_comms(True)  # Gloo cannot scale while it sums
            layer.set_gradient_divide_factor(1.0)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=5)
    parser.add_argument("--accumulate", type=int, default=2)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(12)
    model = nn.Sequential(nn.Linear(5, 20), Residual(20), Residual(20), nn.Linear(20, 4))
    model = sharded(model, mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    data = shells(200, seed=4)
    sampler = DistributedSampler(data, seed=6)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for number, (points, shell) in enumerate(loader, 1):
            last = number % args.accumulate == 0
            model.set_requires_gradient_sync(last)
            loss = F.cross_entropy(model(points), shell) / args.accumulate
            loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
