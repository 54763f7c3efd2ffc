"""Transfer a small CNN to a task with fewer classes: new head, lower learning rate for the features."""

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


def pretrained():
    """Stands for weights that somebody has downloaded."""
    torch.manual_seed(77)
    return ConvNet(classes=10)


class Experiment:
    def __init__(self, args):
        self.args = args
        self.rank = int(os.environ["RANK"])
        self.net = pretrained()
        self.optimizer = torch.optim.SGD(
            [
                {"params": self.net.features.parameters(), "lr": 0.1 * args.lr},
                {"params": self.net.classifier.parameters(), "lr": args.lr},
            ],
            momentum=0.9,
        )
        self.prepare_data()
        self.prepare_model()

    def prepare_data(self):
        data = Bars(256, seed=41)
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, self.args.batch_size, sampler=self.sampler)
        self.classes = int(data.labels.max()) + 1

    def prepare_model(self):
        self.net.classifier = nn.Linear(self.net.classifier.in_features, self.classes)
        self.model = DDP(self.net)

    def run(self):
        for epoch in range(self.args.epochs):
            self.sampler.set_epoch(epoch)
            right = torch.zeros(2)
            for images, labels in self.loader:
                logits = self.model(images)
                self.optimizer.zero_grad()
                F.cross_entropy(logits, labels).backward()
                self.optimizer.step()
                right += torch.tensor([(logits.argmax(1) == labels).sum(), len(labels)])
            dist.all_reduce(right)
            if self.rank == 0:
                print(f"epoch {epoch}: accuracy {(right[0] / right[1]).item():.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.1)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    Experiment(arguments).run()
    dist.destroy_process_group()
