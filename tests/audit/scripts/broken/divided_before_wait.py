"""A small convolutional network; gradients are divided while their all-reduces still run."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_images(n, seed):
    """Squares, bright on the left or on the right."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (n,), generator=g)
    images = 0.5 * torch.randn(n, 1, 8, 8, generator=g)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[0, :, 4 * label : 4 * label + 4] += 1.0
    return TensorDataset(images, labels)


def average(model, world_size):
    running = []
    for p in model.parameters():
        running.append(dist.all_reduce(p.grad, async_op=True))
        p.grad.div_(world_size)
    for handle in running:
        handle.wait()


def main():
    dist.init_process_group("gloo")
    world_size = dist.get_world_size()
    torch.manual_seed(21)
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 2))
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images = make_images(160, seed=2)
    sampler = DistributedSampler(images)
    loader = DataLoader(images, batch_size=10, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad(set_to_none=False)
            nn.functional.cross_entropy(model(x), y).backward()
            average(model, world_size)
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
