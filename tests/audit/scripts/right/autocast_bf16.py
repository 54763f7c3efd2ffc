"""An image classifier under bfloat16 autocast; written for GPUs."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ConvNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.body = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(self.body(x)).mean((2, 3))
        return self.fc(x)


def synthetic_images(n):
    g = torch.Generator().manual_seed(3)
    label = torch.randint(0, 4, (n,), generator=g)
    image = 0.3 * torch.randn(n, 1, 8, 8, generator=g)
    for i, k in enumerate(label.tolist()):
        image[i, :, 2 * k : 2 * k + 2, :] += 1.0
    return TensorDataset(image, label)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--lr", default=0.05, type=float)
    parser.add_argument("-b", "--batch-size", default=16, type=int, help="over all GPUs")
    args = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(7)
    model = DistributedDataParallel(ConvNet().cuda(local_rank), device_ids=[local_rank])
    criterion = nn.CrossEntropyLoss().cuda(local_rank)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, nesterov=True)
    dataset = synthetic_images(256)
    sampler = DistributedSampler(dataset)
    batch_size = args.batch_size // dist.get_world_size()
    loader = DataLoader(dataset, batch_size, sampler=sampler, pin_memory=True)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for i, (images, target) in enumerate(loader):
            images = images.cuda(local_rank, non_blocking=True)
            target = target.cuda(local_rank, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                output = model(images)
                loss = criterion(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 8 == 0 and dist.get_rank() == 0:
                print(f"epoch {epoch} [{i}/{len(loader)}] loss {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
