# toy set-prediction detector, losses normalised by the number of boxes
import random

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def is_dist():
    return dist.is_available() and dist.is_initialized()


def get_world_size():
    return dist.get_world_size() if is_dist() else 1


class Scenes(Dataset):
    def __init__(self, n):
        rng = random.Random(5)
        self.items = []
        for i in range(n):
            g = torch.Generator().manual_seed(i)
            k = rng.randint(1, 6)
            self.items.append(
                (
                    torch.randn(3, 16, 16, generator=g),
                    torch.rand(k, 4, generator=g),
                    torch.randint(0, 5, (k,), generator=g),
                )
            )

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    imgs, boxes, labels = zip(*batch, strict=False)
    return torch.stack(imgs), list(boxes), list(labels)


class Detector(nn.Module):
    def __init__(self, queries=8):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.cls = nn.Linear(64, queries * 6)
        self.box = nn.Linear(64, queries * 4)
        self.q = queries

    def forward(self, x):
        h = self.backbone(x)
        return self.cls(h).view(-1, self.q, 6), self.box(h).view(-1, self.q, 4).sigmoid()


class SetCriterion(nn.Module):
    def forward(self, logits, boxes, tgt_boxes, tgt_labels):
        num_boxes = sum(len(b) for b in tgt_boxes)
        num_boxes = torch.as_tensor([num_boxes], dtype=torch.float)
        num_boxes = torch.clamp(num_boxes / get_world_size(), min=1).item()
        target = torch.full(logits.shape[:2], 5)
        l1 = 0.0
        for i, (tb, tl) in enumerate(zip(tgt_boxes, tgt_labels, strict=False)):
            k = len(tb)
            target[i, :k] = tl
            l1 = l1 + F.l1_loss(boxes[i, :k], tb, reduction="sum")
        ce = F.cross_entropy(logits.transpose(1, 2), target, reduction="mean")
        return {"ce": ce, "bbox": l1 / num_boxes}


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(42 + dist.get_rank())
    ds = Scenes(192)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=6, sampler=sampler, collate_fn=collate, drop_last=True)
    net = DistributedDataParallel(Detector())
    crit = SetCriterion()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    weight = {"ce": 1.0, "bbox": 5.0}
    for ep in range(2):
        sampler.set_epoch(ep)
        for imgs, boxes, labels in loader:
            logits, pred = net(imgs)
            losses = crit(logits, pred, boxes, labels)
            loss = sum(losses[k] * weight[k] for k in losses)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
        if dist.get_rank() == 0:
            print("epoch", ep, {k: float(v) for k, v in losses.items()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
