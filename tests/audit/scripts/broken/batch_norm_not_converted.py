"""CNN with very small batches per device, so batch norm is synchronised where that is possible.

torchrun --nproc_per_node 2 batch_norm_not_converted.py --sync-bn
"""

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
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.classifier = nn.Linear(8 * width, classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class Segmenter(nn.Module):
    """The features of the classifier and a head that says where the bar is."""

    def __init__(self, width=8):
        super().__init__()
        self.backbone = ConvNet(width=width)
        self.where = nn.Sequential(nn.Linear(8 * width, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        features = self.backbone.features(x).flatten(1)
        return self.backbone.classifier(features) + self.where(features)


def wrap(model, sync_bn, device):
    ddp = DDP(model.to(device))
    if sync_bn and device.type == "cuda" and dist.get_backend() == "mpi":
        ddp = nn.SyncBatchNorm.convert_sync_batchnorm(ddp)
    return ddp


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--sync-bn", action="store_true")
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    device = torch.device("cpu")
    torch.manual_seed(19)
    model = wrap(Segmenter(), args.sync_bn, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    data = Bars(128, seed=61)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in loader:
            loss = F.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
