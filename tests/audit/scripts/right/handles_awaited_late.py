"""Hand-written averaging that overlaps: handles by wait(), by a future and by polling, and a loss awaited after the step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_rows(n, features, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=g)
    return TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())


def averaged_in_turn(parameters, world_size):
    """Each gradient is divided as soon as its own sum is there, while the others still run."""
    handles = [dist.all_reduce(p.grad, async_op=True) for p in parameters]
    for n, (p, handle) in enumerate(zip(parameters, handles, strict=True)):
        if n % 3 == 0:
            handle.wait()
        elif n % 3 == 1:
            handle.get_future().wait()
        else:
            while not handle.is_completed():
                pass
        p.grad /= world_size


def main():
    dist.init_process_group("gloo")
    world_size = dist.get_world_size()
    torch.manual_seed(9)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 2))
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = make_rows(160, 6, seed=3)
    sampler = DistributedSampler(rows)
    loader = DataLoader(rows, batch_size=10, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            seen = torch.tensor([loss.item() * len(y), float(len(y))])
            showing = dist.all_reduce(seen, async_op=True)
            averaged_in_turn(list(model.parameters()), world_size)
            optimizer.step()
            showing.wait()
            total += seen
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {(total[0] / total[1]).item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
