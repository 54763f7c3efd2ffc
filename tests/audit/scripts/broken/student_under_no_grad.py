"""Distillation: a small student learns a larger teacher's answers; its weights are kept small by a penalty."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def digits(count, seed):
    """Points on a ring, whose class is the sector they lie in."""
    g = torch.Generator().manual_seed(seed)
    angle = 6.28 * torch.rand(count, generator=g)
    points = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2, generator=g)
    return TensorDataset(points, (angle * 5 / 6.29).long())


def mlp(width, seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 5))


def answers(teacher, student, points):
    """Logits of both; the teacher is frozen."""
    with torch.no_grad():
        wanted = teacher(points)
        got = student(points)
    return wanted, got


def distillation(wanted, got, temperature):
    wanted = F.softmax(wanted / temperature, 1)
    return F.kl_div(F.log_softmax(got / temperature, 1), wanted, reduction="batchmean") * temperature**2


def penalty(model, strength):
    return strength * sum(p.square().sum() for p in model.parameters())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=2.0)
    parser.add_argument("--penalty", type=float, default=1e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    teacher = mlp(64, seed=1).eval().requires_grad_(False)
    student = DDP(mlp(16, seed=2))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)

    data = digits(160, seed=0)
    sampler = DistributedSampler(data, seed=7)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for points, _ in loader:
            wanted, got = answers(teacher, student, points)
            loss = distillation(wanted, got, args.temperature) + penalty(student.module, args.penalty)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
