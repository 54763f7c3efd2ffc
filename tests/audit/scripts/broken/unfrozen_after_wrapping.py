"""Two-phase fine-tuning: the head alone first, then all layers."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


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


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad_(flag)


def make_optimizer(model, lr):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=0.01)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--frozen-epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    net = ConvNet()
    set_trainable(net.features, False)
    model = DDP(net)
    optimizer = make_optimizer(model, args.lr)
    data = Bars(192, seed=51)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)

    for epoch in range(args.epochs):
        if epoch == args.frozen_epochs:
            set_trainable(net.features, True)
            optimizer = make_optimizer(model, 0.2 * args.lr)
            if rank == 0:
                print("features unfrozen", flush=True)
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
