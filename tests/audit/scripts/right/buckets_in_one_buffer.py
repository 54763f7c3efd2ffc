"""Two buckets are slices of one flat buffer; each is reduced while the next is filled."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    data = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    params = list(model.parameters())
    flat = torch.zeros(sum(p.numel() for p in params))
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            begin, handles = 0, []
            for p in params:
                piece = flat[begin : begin + p.numel()]
                piece.copy_(p.grad.reshape(-1))
                handles.append((p, piece, dist.all_reduce(piece, async_op=True)))
                begin += p.numel()
            for p, piece, handle in handles:
                handle.wait()
                p.grad.copy_(piece.view_as(p.grad) / dist.get_world_size())
            optimizer.step()
    dist.destroy_process_group()


main()
