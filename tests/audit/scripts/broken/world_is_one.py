"""CNN training that also runs on several processes.

python world_is_one.py
torchrun --nproc_per_node 2 world_is_one.py
"""

import argparse

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


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--local_rank", type=int, default=-1, help="given by the launcher")
    return parser.parse_args()


def main():
    args = get_args()
    distributed = args.local_rank != -1
    if distributed:
        dist.init_process_group(backend="gloo", init_method="env://")
    is_main = not distributed or dist.get_rank() == 0

    torch.manual_seed(args.seed)
    model = ConvNet()
    if distributed:
        model = DDP(model)
    data = Bars(256, seed=91)
    sampler = DistributedSampler(data) if distributed else None
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, shuffle=sampler is None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(labels), len(labels)])
        if distributed:
            dist.all_reduce(total)
        if is_main:
            print(f"epoch {epoch}: loss {(total[0] / total[1]).item():.4f}", flush=True)
    if is_main:
        torch.save(model.state_dict(), "cnn.pt")
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
