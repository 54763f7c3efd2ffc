"""A CNN with plain batch norm, whose statistics each rank takes over its own samples on purpose."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNetLike(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = BasicBlock(1, 6)
        self.layer2 = BasicBlock(6, 12, stride=2)
        self.linear = nn.Linear(12, 2)

    def forward(self, x):
        out = self.layer2(self.layer1(x))
        return self.linear(F.adaptive_avg_pool2d(out, 1).flatten(1))


class Crosses(Dataset):
    """Noise with a cross or a square in it."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        image = 0.4 * torch.randn(1, 8, 8, generator=g)
        label = index % 2
        if label:
            image[0, 3:5, :] += 1
            image[0, :, 3:5] += 1
        else:
            image[0, 2:6, 2:6] += 1
        return image, label


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = DDP(ResNetLike())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
    trainset = Crosses(128)
    sampler = DistributedSampler(trainset)
    trainloader = DataLoader(trainset, batch_size=8, sampler=sampler, num_workers=1)
    for epoch in range(3):
        net.train()
        sampler.set_epoch(epoch)
        for inputs, targets in trainloader:
            optimizer.zero_grad()
            F.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
        scheduler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
