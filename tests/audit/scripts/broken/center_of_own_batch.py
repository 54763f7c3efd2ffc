"""Self-distillation without labels (DINO) on vectors."""

import copy
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class TwoViews(Dataset):
    def __init__(self, n=320):
        self.x = torch.randn(n, 24, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        return x + 0.3 * torch.randn(24), x + 0.3 * torch.randn(24)


class Head(nn.Module):
    def __init__(self, k=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.Linear(64, 32))
        self.last = nn.Linear(32, k, bias=False)

    def forward(self, x):
        return self.last(F.normalize(self.net(x), dim=-1))


class DINOLoss(nn.Module):
    def __init__(self, k=16, t_s=0.1, t_t=0.05, momentum=0.9):
        super().__init__()
        self.t_s, self.t_t, self.m = t_s, t_t, momentum
        self.register_buffer("center", torch.zeros(1, k))

    def forward(self, student, teacher):
        s = [F.log_softmax(v / self.t_s, -1) for v in student.chunk(2)]
        t = [F.softmax((v - self.center) / self.t_t, -1).detach() for v in teacher.chunk(2)]
        loss = -0.5 * ((t[0] * s[1]).sum(-1).mean() + (t[1] * s[0]).sum(-1).mean())
        self.update_center(teacher)
        return loss

    @torch.no_grad()
    def update_center(self, teacher):
        batch_center = teacher.mean(0, keepdim=True)
        self.center = self.center * self.m + batch_center * (1 - self.m)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(50 + dist.get_rank())
    student = nn.parallel.DistributedDataParallel(Head())
    teacher = copy.deepcopy(student.module)
    teacher.requires_grad_(False)
    crit = DINOLoss()
    ds = TwoViews()
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=16, sampler=sampler, drop_last=True)
    opt = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.04)
    total = 3 * len(loader)
    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for a, b in loader:
            x = torch.cat([a, b])
            with torch.no_grad():
                t = teacher(x)
            loss = crit(student(x), t)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 3.0)
            opt.step()
            m = 1 - 0.01 * (math.cos(math.pi * step / total) + 1) / 2
            with torch.no_grad():
                for ps, pt in zip(student.module.parameters(), teacher.parameters(), strict=False):
                    pt.mul_(m).add_(ps, alpha=1 - m)
            step += 1
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
