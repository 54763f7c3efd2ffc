"""A small convolutional network on pictures of bars. The loss is computed once, before the branches."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

ACCUMULATION_STEPS = 3


class Bars(Dataset):
    """A bright bar, horizontal or vertical, in an 8 x 8 picture with noise."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(4)
        self.vertical = torch.randint(0, 2, (n,), generator=g)
        self.place = torch.randint(0, 8, (n,), generator=g)
        self.noise = 0.3 * torch.randn(n, 1, 8, 8, generator=g)

    def __len__(self):
        return len(self.vertical)

    def __getitem__(self, i):
        picture = self.noise[i].clone()
        if self.vertical[i]:
            picture[0, :, self.place[i]] += 1
        else:
            picture[0, self.place[i], :] += 1
        return picture, self.vertical[i]


def build():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 64, 2)
    )


def train_one_epoch(model, loader, criterion, optimizer):
    optimizer.zero_grad()
    for step, (pictures, labels) in enumerate(loader, start=1):
        loss = criterion(model(pictures), labels) / ACCUMULATION_STEPS
        if step % ACCUMULATION_STEPS != 0:
            with model.no_sync():
                loss.backward()
        else:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(build())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    data = Bars(144)  # 12 batches for each of two ranks
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=6, sampler=sampler, drop_last=True)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        train_one_epoch(model, loader, criterion, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
