"""Classifier whose last batches are smaller; loss and accuracy are means of batch means, as they would be on one process."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_quadrants(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=g)
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def mean_over_ranks(value):
    value = torch.tensor(value)
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = 0.0
    for x, y in loader:
        total += (model(x).argmax(1) == y).float().mean().item()
    return mean_over_ranks(total / len(loader))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    model = DDP(nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3)))
    train, valid = make_quadrants(76, 1), make_quadrants(76, 2)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, 16, sampler=sampler)  # 16, 16 and 6 samples on each of two ranks
    valid_loader = DataLoader(valid, 16, sampler=DistributedSampler(valid, shuffle=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        total = torch.zeros(())
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        loss = mean_over_ranks(float(total) / len(loader))
        accuracy = evaluate(model, valid_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
