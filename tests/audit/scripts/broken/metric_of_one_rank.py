"""CNN whose best checkpoint is chosen by validation accuracy."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Bars(Dataset):
    """12 x 12 images of a horizontal, vertical or diagonal bar in noise, or of a dot."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 4, (n,), generator=g)
        self.images = 0.3 * torch.randn(n, 1, 12, 12, generator=g)
        where = torch.randint(2, 10, (n, 2), generator=g)
        for image, label, (x, y) in zip(self.images, self.labels.tolist(), where.tolist(), strict=True):
            if label == 0:
                image[0, y, :] += 1.0
            elif label == 1:
                image[0, :, x] += 1.0
            elif label == 2:
                image[0] += torch.eye(12)
            else:
                image[0, y - 1 : y + 2, x - 1 : x + 2] += 1.0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class ConvNet(nn.Module):
    def __init__(self, classes=4, width=8):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.GroupNorm(2, width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.GroupNorm(2, 2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.classifier = nn.Linear(8 * width, classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0.0

    def update(self, value, n):
        self.sum += value * n
        self.count += n

    @property
    def average(self):
        return self.sum / max(self.count, 1)


def train_epoch(model, loader, optimizer):
    model.train()
    meter = AverageMeter()
    for images, labels in loader:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(loss.item(), len(labels))
    return meter.average


def evaluate(model, loader):
    model.eval()
    meter = AverageMeter()
    with torch.no_grad():
        for images, labels in loader:
            meter.update((model(images).argmax(1) == labels).float().mean().item(), len(labels))
    return meter.average


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    model = DDP(ConvNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    train, valid = Bars(192, seed=71), Bars(60, seed=72)
    sampler = DistributedSampler(train, world, rank)
    train_loader = DataLoader(train, args.batch_size, sampler=sampler)
    valid_loader = DataLoader(valid, args.batch_size, sampler=DistributedSampler(valid, world, rank, shuffle=False))
    best = 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, train_loader, optimizer)
        accuracy = evaluate(model, valid_loader)
        if rank == 0:
            print(f"epoch {epoch}: train loss {loss:.4f}, valid accuracy {accuracy:.4f}", flush=True)
            if accuracy >= best:
                best = accuracy
                torch.save(model.module.state_dict(), "best.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
