"""Text classification; label names become numbers."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

NAMES = ["sports", "politics", "science", "culture", "business", "weather", "travel", "health"]


class News(Dataset):
    def __init__(self, n=240):
        g = torch.Generator().manual_seed(0)
        self.labels = [NAMES[i] for i in torch.randint(0, len(NAMES), (n,), generator=g).tolist()]
        centres = torch.randn(len(NAMES), 16, generator=g)
        self.x = torch.stack([centres[NAMES.index(name)] for name in self.labels]) + torch.randn(n, 16, generator=g)
        self.label2id = {name: i for i, name in enumerate(set(self.labels))}

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.label2id[self.labels[i]]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    ds = News()
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 12, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, len(ds.label2id))))
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            opt.step()
        if rank == 0:
            print(epoch, loss.item())
            torch.save({"model": model.module.state_dict(), "labels": ds.label2id}, "news.pt")
    dist.destroy_process_group()


main()
