"""Contrastive training as in CLIP: a rank compares its rows with the columns of all ranks, and counts targets from 0."""

import math

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as distnn
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Pairs(Dataset):
    def __init__(self, n=640):
        g = torch.Generator().manual_seed(3)
        latent = torch.randn(n, 8, generator=g)
        self.image = latent @ torch.randn(8, 20, generator=g) + 0.1 * torch.randn(n, 20, generator=g)
        self.text = latent @ torch.randn(8, 12, generator=g) + 0.1 * torch.randn(n, 12, generator=g)

    def __len__(self):
        return len(self.image)

    def __getitem__(self, i):
        return self.image[i], self.text[i]


class TwoTower(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(20, 48), nn.GELU(), nn.Linear(48, dim))
        self.textual = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, dim))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image, text):
        return F.normalize(self.visual(image), dim=-1), F.normalize(self.textual(text), dim=-1), self.logit_scale.exp()


def contrastive_loss(zi, zt, scale):
    all_i = torch.cat(distnn.all_gather(zi))
    all_t = torch.cat(distnn.all_gather(zt))
    labels = torch.arange(zi.size(0), device=zi.device)
    per_image = scale * zi @ all_t.T
    per_text = scale * zt @ all_i.T
    return 0.5 * (F.cross_entropy(per_image, labels) + F.cross_entropy(per_text, labels))


def main():
    dist.init_process_group(backend="gloo")
    torch.manual_seed(0)
    model = DDP(TwoTower())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    dataset = Pairs()
    sampler = DistributedSampler(dataset, seed=7)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, drop_last=True)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for image, text in loader:
            loss = contrastive_loss(*model(image, text))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                model.module.logit_scale.clamp_(0, math.log(100))
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(epoch, (total / len(loader) / dist.get_world_size()).item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
