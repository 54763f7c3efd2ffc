"""Matching of signals and their noisy copies over all ranks; a rank's targets are shifted by too few rows."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as distnn
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_copies(n, seed):
    g = torch.Generator().manual_seed(seed)
    signal = torch.randn(n, 10, generator=g)
    return TensorDataset(signal, signal + 0.3 * torch.randn(n, 10, generator=g))


def matching_loss(queries, keys):
    every = torch.cat(distnn.all_gather(keys))
    targets = torch.arange(len(queries)) + dist.get_rank() * (len(queries) // 2)
    return F.cross_entropy(10 * queries @ every.T, targets)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(8)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 12)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    copies = make_copies(256, seed=4)
    sampler = DistributedSampler(copies)
    loader = DataLoader(copies, batch_size=16, sampler=sampler, drop_last=True)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for signal, copy in loader:
            queries, keys = F.normalize(model(torch.cat([signal, copy])), dim=1).chunk(2)
            optimizer.zero_grad()
            matching_loss(queries, keys).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
