"""Classification of rings; DDP averages the gradients, and the script multiplies them by the world size again."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_rings(n, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (n,), generator=g)
    angle = 6.28 * torch.rand(n, generator=g)
    radius = 1 + labels + 0.2 * torch.randn(n, generator=g)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), labels)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(31)
    model = DDP(nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rings = make_rings(256, seed=1)
    sampler = DistributedSampler(rings)
    loader = DataLoader(rings, batch_size=16, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            for p in model.parameters():
                p.grad *= dist.get_world_size()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
