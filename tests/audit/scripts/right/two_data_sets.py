"""Training on photographs and on drawings: each step adds the gradients of two losses, from two loaders."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def domain(n, shift, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    centres = torch.randn(4, 12, generator=torch.Generator().manual_seed(1))
    return TensorDataset(centres[y] + shift + 0.4 * torch.randn(n, 12, generator=g), y)


def loader_of(data, seed):
    return DataLoader(data, batch_size=8, sampler=DistributedSampler(data, seed=seed))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = DDP(nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    photographs = loader_of(domain(160, 0.0, seed=2), seed=7)
    drawings = loader_of(domain(160, 0.5, seed=3), seed=8)
    for epoch in range(2):
        photographs.sampler.set_epoch(epoch)
        drawings.sampler.set_epoch(epoch)
        for (x, y), (u, v) in zip(photographs, drawings, strict=False):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            F.cross_entropy(model(u), v).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
