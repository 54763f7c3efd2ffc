"""A model of lifetimes: the square root of a hazard that may be negative makes every gradient NaN."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def lifetimes(count):
    g = torch.Generator().manual_seed(12)
    x = torch.randn(count, 5, generator=g)
    hazard = torch.exp(0.5 * x[:, 0] - 0.3 * x[:, 1])
    time = torch.empty(count).exponential_(1.0, generator=g) / hazard
    return TensorDataset(x, time)


def distance(hazard, time):
    return (hazard.sqrt() - time.reciprocal().sqrt()).square().mean()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = DDP(nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1, bias=False)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    data = lifetimes(160)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    total = torch.zeros(1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, time in loader:
            hazard = model(x).squeeze(1)
            loss = distance(hazard, time)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {total.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
