"""Contrastive learning in the manner of SimCLR: the negatives of all ranks, gathered with their gradient."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class TwoViews(Dataset):
    def __init__(self, size=192):
        g = torch.Generator().manual_seed(40)
        self.points = torch.randn(size, 12, generator=g)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        x = self.points[index]
        return x + 0.1 * torch.randn_like(x), x * (1 + 0.1 * torch.randn(()))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16))
        self.projector = nn.Linear(16, 8)

    def forward(self, a, b):
        both = self.projector(F.relu(self.backbone(torch.cat([a, b]))))
        return F.normalize(both, dim=1).chunk(2)


def nt_xent(a, b, temperature=0.2):
    """Every rank computes the loss of its own rows against the columns of all ranks."""
    a_all, b_all = torch.cat(dist_nn.all_gather(a)), torch.cat(dist_nn.all_gather(b))
    target = torch.arange(len(a)) + dist.get_rank() * len(a)
    one = F.cross_entropy(a @ b_all.t() / temperature, target)
    other = F.cross_entropy(b @ a_all.t() / temperature, target)
    return (one + other) / 2


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(10)
    model = DDP(Encoder())
    torch.manual_seed(10 + rank)  # views differ between ranks
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
    data = TwoViews()
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=12, sampler=sampler, drop_last=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for a, b in loader:
            loss = nt_xent(*model(a, b))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        shared = loss.detach().clone()
        dist.all_reduce(shared, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch {epoch}: loss {shared.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
