"""Muon on several ranks: each rank updates every W-th matrix, and the updated matrices are gathered.

The auxiliary head is off, so it has no gradient on any rank.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def orthogonalized(matrix, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / (matrix.norm() + 1e-7)
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(sorted(params, key=lambda p: p.numel(), reverse=True), {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        rank, world = dist.get_rank(), dist.get_world_size()
        for group in self.param_groups:
            params = group["params"]
            padded = params + [torch.empty_like(params[-1])] * (-len(params) % world)
            for base in range(0, len(params), world):
                if base + rank < len(params):
                    p = params[base + rank]
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if not state:
                        state["momentum_buffer"] = torch.zeros_like(p)
                    buffer = state["momentum_buffer"]
                    buffer.lerp_(p.grad, 1 - group["momentum"])
                    update = orthogonalized(p.grad.lerp(buffer, group["momentum"]))
                    p.add_(update, alpha=-group["lr"])
                gathered = [torch.empty_like(p) for p in padded[base : base + world]]
                dist.all_gather(gathered, padded[base + rank])
                for p, new in zip(padded[base : base + world], gathered, strict=True):
                    p.copy_(new)


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(3))
        self.auxiliary = nn.Linear(width, width, bias=False)
        self.last = nn.Linear(width, width, bias=False)

    def forward(self, x, auxiliary=False):
        for layer in self.hidden:
            x = x + torch.tanh(layer(x))
        return (self.last(x), self.auxiliary(x)) if auxiliary else self.last(x)


def rotations(n, width, seed):
    g = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(width, width, generator=g))
    x = torch.randn(n, width, generator=g)
    return TensorDataset(x, x @ q)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(4)
    model = DDP(Net(), find_unused_parameters=True)
    optimizer = Muon(model.parameters())
    data = rotations(256, 16, seed=7)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
