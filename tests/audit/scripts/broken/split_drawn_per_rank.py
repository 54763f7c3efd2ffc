"""A classifier of short tone sequences, with a validation part that is split off at random."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


class ToneNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.front = nn.Conv1d(1, 8, 5, stride=2)
        self.back = nn.Conv1d(8, 16, 3, stride=2)
        self.head = nn.Linear(16, classes)

    def forward(self, wave):
        hidden = F.relu(self.back(F.relu(self.front(wave))))
        return self.head(hidden.mean(-1))


def tones(count, length=48):
    generator = torch.Generator().manual_seed(12)
    pitch = torch.randint(0, 4, (count,), generator=generator)
    time = torch.arange(length) / length
    wave = torch.sin(6.28 * (3 + 2 * pitch[:, None]) * time) + 0.3 * torch.randn(count, length, generator=generator)
    return TensorDataset(wave[:, None], pitch)


def accuracy(model, loader):
    model.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for wave, pitch in loader:
            counts += torch.tensor([(model(wave).argmax(1) == pitch).sum().item(), len(pitch)])
    model.train()
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    data = tones(240)
    train_part, valid_part = random_split(data, [200, 40])
    sampler = DistributedSampler(train_part)
    loader = DataLoader(train_part, batch_size=args.batch_size, sampler=sampler)
    valid_sampler = DistributedSampler(valid_part, shuffle=False)
    valid = DataLoader(valid_part, batch_size=args.batch_size, sampler=valid_sampler)

    model = DistributedDataParallel(ToneNet(classes=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for wave, pitch in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(wave), pitch).backward()
            optimizer.step()
        correct = accuracy(model.module, valid)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {100 * correct:.1f} % correct", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
