"""Matching of two views; the keys of other ranks are gathered without gradient, and the rank's own are put among them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_views(n, seed):
    g = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, 5, generator=g)
    first, second = torch.randn(2, 5, 10, generator=g)
    return TensorDataset(hidden @ first, hidden @ second)


def matching_loss(queries, keys):
    rank = dist.get_rank()
    every = [torch.empty_like(keys) for _ in range(dist.get_world_size())]
    dist.all_gather(every, keys.detach())
    every[rank] = keys
    targets = torch.arange(len(queries)) + rank * len(queries)
    return F.cross_entropy(8 * queries @ torch.cat(every).T, targets)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(19)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 12)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    views = make_views(256, seed=6)
    sampler = DistributedSampler(views)
    loader = DataLoader(views, batch_size=16, sampler=sampler, drop_last=True)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for first, second in loader:
            queries, keys = F.normalize(model(torch.cat([first, second])), dim=1).chunk(2)
            optimizer.zero_grad()
            matching_loss(queries, keys).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
