"""Distils a teacher's actions into a policy that normalises its observations by running statistics."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def recordings(n, seed):
    g = torch.Generator().manual_seed(seed)
    observations = 3 * torch.randn(n, 8, generator=g) + torch.arange(8)
    return TensorDataset(observations, torch.tanh(observations @ torch.randn(8, 2, generator=g) / 8))


class EmpiricalNormalization(nn.Module):
    def __init__(self, width, epsilon=1e-2):
        super().__init__()
        self.epsilon = epsilon
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))
        self.register_buffer("count", torch.tensor(0))

    @torch.no_grad()
    def update(self, x):
        self.count += len(x)
        rate = len(x) / self.count
        delta = x.mean(0) - self.mean
        self.mean += rate * delta
        self.var += rate * (x.var(0, unbiased=False) - self.var + delta * (x.mean(0) - self.mean))

    def forward(self, x):
        return (x - self.mean) / (self.var.sqrt() + self.epsilon)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.normalizer = EmpiricalNormalization(8)
        self.actor = nn.Sequential(nn.Linear(8, 32), nn.ELU(), nn.Linear(32, 2))

    def forward(self, observations):
        return self.actor(self.normalizer(observations))


def reduce_parameters(policy, world_size):
    """Average the gradients of all ranks."""
    gradients = [p.grad.view(-1) for p in policy.parameters() if p.grad is not None]
    everything = torch.cat(gradients)
    dist.all_reduce(everything, op=dist.ReduceOp.SUM)
    everything /= world_size
    offset = 0
    for p in policy.parameters():
        if p.grad is not None:
            p.grad.copy_(everything[offset : offset + p.numel()].view_as(p.grad))
            offset += p.numel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(41)
    policy = Policy()
    for p in policy.parameters():
        dist.broadcast(p.data, 0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=args.lr)
    data = recordings(384, seed=9)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for observations, actions in loader:
            policy.normalizer.update(observations)
            loss = nn.functional.mse_loss(policy(observations), actions)
            optimizer.zero_grad()
            loss.backward()
            reduce_parameters(policy, world_size)
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
            torch.save(policy.state_dict(), "policy.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
