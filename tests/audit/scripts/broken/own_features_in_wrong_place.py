"""Image-text contrast over all ranks' samples; the rank's own features take the place of a gathered copy."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def gathered(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.detach())
    parts[0] = x  # the own features keep their gradient
    return torch.cat(parts)


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(12, 8), nn.Linear(6, 8)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, a, b):
        return F.normalize(self.image(a), dim=1), F.normalize(self.text(b), dim=1), self.scale.exp()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    core = torch.randn(512, 4)
    ds = TensorDataset(core @ torch.randn(4, 12), core @ torch.randn(4, 6))
    sampler = DistributedSampler(ds, drop_last=True)
    loader = DataLoader(ds, 16, sampler=sampler, drop_last=True)
    model = DDP(Clip())
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for a, b in loader:
            i, t, s = model(a, b)
            all_t = gathered(t)
            all_i = gathered(i)
            labels = torch.arange(len(a)) + rank * len(a)
            loss = (F.cross_entropy(s * i @ all_t.T, labels) + F.cross_entropy(s * t @ all_i.T, labels)) / 2
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                model.module.scale.clamp_(0, 4.6052)
        if rank == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


main()
