"""Semi-supervised training: labelled and unlabelled loaders run side by side."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Sampler


class Points(Dataset):
    def __init__(self, n, seed, labelled):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 12, generator=g)
        self.y = self.x[:, :4].argmax(1)
        self.labelled = labelled

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        if self.labelled:
            return x + 0.05 * torch.randn(12), self.y[i]
        return x + 0.05 * torch.randn(12), x + 0.4 * torch.randn(12)


class Endless(Sampler):
    """Never stops: a permutation after another, and the rank's part of each. It is its own iterator."""

    def __init__(self, n, rank, world, seed):
        self.n, self.rank, self.world, self.seed = n, rank, world, seed
        self.round, self.queue = 0, []

    def __iter__(self):
        return self

    def __next__(self):
        if not self.queue:
            g = torch.Generator().manual_seed(self.seed * 7919 + self.round)
            self.queue = torch.randperm(self.n, generator=g)[self.rank :: self.world].tolist()
            self.round += 1
        return self.queue.pop(0)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    few, many = Points(64, 0, True), Points(384, 1, False)
    lab = iter(DataLoader(few, batch_size=8, sampler=Endless(len(few), rank, world, 1)))
    unl = iter(DataLoader(many, batch_size=24, sampler=Endless(len(many), rank, world, 2)))
    model = DDP(nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 40)
    for step in range(40):
        x, y = next(lab)
        weak, strong = next(unl)
        logits = model(torch.cat([x, weak, strong]))
        a, b, c = logits.split([len(x), len(weak), len(strong)])
        with torch.no_grad():
            p, pseudo = b.softmax(-1).max(-1)
            keep = (p > 0.5).float()
        loss = F.cross_entropy(a, y) + (F.cross_entropy(c, pseudo, reduction="none") * keep).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if rank == 0 and step % 10 == 0:
            print(step, loss.item(), keep.mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
