"""Embeddings of small images, compared by their angle; some images are empty.

torchrun --nproc_per_node 2 norm_of_empty_images.py
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def spots(n, seed):
    g = torch.Generator().manual_seed(seed)
    images = torch.rand(n, 25, generator=g)
    labels = images[:, :12].sum(1).gt(images[:, 13:].sum(1)).long()
    images[torch.rand(n, generator=g) < 0.03] = 0.0
    return TensorDataset(images, labels)


class Angles(nn.Module):
    """Cosines of an image's embedding and those of the classes."""

    def __init__(self, width=12):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(25, 32, bias=False), nn.ReLU(), nn.Linear(32, width, bias=False))
        self.classes = nn.Parameter(torch.randn(2, width))

    def forward(self, images):
        x = self.embed(images)
        length = x.square().sum(1, keepdim=True).sqrt()
        return 5 * (x / length.clamp(min=1e-6)) @ F.normalize(self.classes, dim=1).t()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = DDP(Angles())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = spots(256, seed=8)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
