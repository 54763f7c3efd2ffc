"""A classifier of rare events: the loss weighs its two classes, and each rank divides by its own weights.

torchrun --nproc_per_node 2 class_weights_of_own_samples.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RARE = 8.0


def readings(count, seed):
    """One in five readings is an event, which moves all channels a little."""
    g = torch.Generator().manual_seed(seed)
    events = (torch.rand(count, generator=g) < 0.2).long()
    return TensorDataset(torch.randn(count, 12, generator=g) + 0.7 * events[:, None], events)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    weighted = nn.CrossEntropyLoss(torch.tensor([1.0, RARE]))

    data = readings(256, seed=3)
    sampler = DistributedSampler(data, seed=9)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for values, events in loader:
            optimizer.zero_grad()
            loss = weighted(model(values), events)
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
