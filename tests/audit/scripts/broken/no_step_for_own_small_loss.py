"""A classifier that steps only where its own loss is not small yet, rank by rank."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (n,), generator=g)
    centres = 2 * torch.randn(4, 6, generator=g)
    return TensorDataset(centres[labels] + torch.randn(n, 6, generator=g), labels)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(14)
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    blobs = make_blobs(320, seed=9)
    sampler = DistributedSampler(blobs)
    loader = DataLoader(blobs, batch_size=4, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            seen = loss.item()
            if seen > 1.0:
                optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
