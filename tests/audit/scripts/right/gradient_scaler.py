"""Half precision with a gradient scaler: unscale, clip, step. The first steps overflow, and every rank skips them."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class TextCNN(nn.Module):
    def __init__(self, vocab=30, width=12, classes=3):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.convs = nn.ModuleList(nn.Linear(k * width, 8) for k in (2, 3))
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Linear(16, classes)

    def forward(self, ids):
        x = self.embedding(ids)
        pooled = [torch.relu(conv(self.windows(x, k))).amax(1) for conv, k in zip(self.convs, (2, 3), strict=True)]
        return self.fc(self.dropout(torch.cat(pooled, 1)))

    @staticmethod
    def windows(x, k):
        return torch.cat([x[:, i : x.shape[1] - k + 1 + i] for i in range(k)], -1)


def documents(n, length=10):
    g = torch.Generator().manual_seed(15)
    ids = torch.randint(0, 30, (n, length), generator=g)
    return TensorDataset(ids, (ids < 10).sum(1).clamp(2, 4) - 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(TextCNN())
    torch.manual_seed(1 + dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler(args.device, init_scale=2.0**20)
    criterion = nn.CrossEntropyLoss()
    data = documents(256)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        optimizer.zero_grad()
        for step, (ids, label) in enumerate(loader, 1):
            with torch.autocast(args.device, dtype=torch.float16):
                loss = criterion(model(ids).float(), label) / args.accumulate
            scaler.scale(loss).backward()
            if step % args.accumulate == 0:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, scale {scaler.get_scale():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
