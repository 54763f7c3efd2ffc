"""Fine-tuning: the backbone is frozen at first. When it is unfrozen, the model is wrapped anew."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 5, padding=2)
        self.conv2 = nn.Conv1d(8, 8, 5, padding=2)

    def forward(self, x):
        return F.relu(self.conv2(F.relu(self.conv(x)))).mean(-1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = Backbone(), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.backbone(x))


def beats(n):
    g = torch.Generator().manual_seed(12)
    label = torch.randint(0, 2, (n,), generator=g)
    t = torch.arange(32.0)
    wave = torch.sin(t * (0.5 + 0.5 * label.unsqueeze(1)) + 6.28 * torch.rand(n, 1, generator=g))
    return TensorDataset((wave + 0.3 * torch.randn(n, 32, generator=g)).unsqueeze(1), label)


def set_trainable(module, trainable):
    for p in module.parameters():
        p.requires_grad = trainable


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--unfreeze-at", type=int, default=10, help="step")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = Classifier()
    set_trainable(net.backbone, False)
    model = DDP(net)
    optimizer = torch.optim.SGD(net.head.parameters(), lr=0.1, momentum=0.9)
    data = beats(192)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 8, sampler=sampler)
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            if step == args.unfreeze_at:
                set_trainable(net.backbone, True)
                model = DDP(net)
                optimizer.add_param_group({"params": net.backbone.parameters(), "lr": 0.01})
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
