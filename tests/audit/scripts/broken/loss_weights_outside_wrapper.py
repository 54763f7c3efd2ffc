"""Two tasks; the weights of their losses are learned (Kendall et al.)."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class TwoTasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 24), nn.ReLU())
        self.a, self.b = nn.Linear(24, 1), nn.Linear(24, 3)

    def forward(self, x):
        h = self.body(x)
        return self.a(h), self.b(h)


class Uncertainty(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.log_var = nn.Parameter(torch.zeros(n))

    def forward(self, *losses):
        return sum(torch.exp(-s) * loss + s for s, loss in zip(self.log_var, losses, strict=True))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(480, 8)
    ds = TensorDataset(x, x[:, :1] * 2, (x[:, 1] > 0).long() + (x[:, 2] > 0).long())
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 12, sampler=sampler)
    model = DDP(TwoTasks())
    criterion = Uncertainty(2)
    opt = torch.optim.Adam([*model.parameters(), *criterion.parameters()], 2e-3)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, ya, yb in loader:
            pa, pb = model(xb)
            loss = criterion(nn.functional.mse_loss(pa, ya), nn.functional.cross_entropy(pb, yb))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item(), criterion.log_var.tolist())
    dist.destroy_process_group()


main()
