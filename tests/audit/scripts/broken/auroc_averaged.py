"""Binary classifier for imbalanced data, the best AUROC is kept."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 10, generator=g)
    p = torch.sigmoid(1.5 * x[:, 0] - 2 + x[:, 1] * x[:, 2])
    return TensorDataset(x, torch.bernoulli(p, generator=g))


def auroc(scores, labels):
    order = scores.argsort()
    ranks = torch.empty_like(scores)
    ranks[order] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
    pos = labels.sum()
    neg = len(labels) - pos
    return (ranks[labels == 1].sum() - pos * (pos + 1) / 2) / (pos * neg).clamp(min=1)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    s, labels = [], []
    for x, y in loader:
        s.append(model(x).squeeze(1))
        labels.append(y)
    value = auroc(torch.cat(s), torch.cat(labels))
    dist.all_reduce(value, op=dist.ReduceOp.SUM)
    value /= dist.get_world_size()
    model.train()
    return value.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    train, val = data(480, 1), data(96, 2)
    ts, vs = DistributedSampler(train), DistributedSampler(val, shuffle=False)
    tl, vl = DataLoader(train, 20, sampler=ts), DataLoader(val, 16, sampler=vs)
    net = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    lossf = nn.BCEWithLogitsLoss()
    best = 0.0
    for epoch in range(4):
        ts.set_epoch(epoch)
        for x, y in tl:
            opt.zero_grad()
            lossf(net(x).squeeze(1), y).backward()
            opt.step()
        auc = validate(net, vl)
        if auc > best:
            best = auc
            if rank == 0:
                torch.save(net.module.state_dict(), "best.pt")
        if rank == 0:
            print(f"epoch {epoch} auroc {auc:.4f} best {best:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
