import torch
import torch.distributed as dist
import torch.nn as nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group(backend="gloo")
RANK, WORLD = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 1, 12, 12, generator=g)
    y = (x.mean((1, 2, 3)) > 0).long() + 2 * (x[:, 0, 6, 6] > 0).long()
    return TensorDataset(x, y)


train, valid = make(384, 1), make(128, 2)
train_sampler = DistributedSampler(train, shuffle=True)
valid_sampler = DistributedSampler(valid, shuffle=False)
train_loader = DataLoader(train, 16, sampler=train_sampler)
valid_loader = DataLoader(valid, 16, sampler=valid_sampler)

net = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 4),
)
ddp = nn.parallel.DistributedDataParallel(net)
swa = AveragedModel(net)
opt = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
swa_sched = SWALR(opt, swa_lr=0.02, anneal_epochs=2)
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)


@torch.no_grad()
def evaluate(model):
    model.eval()
    tot = torch.zeros(2)
    for x, y in valid_loader:
        tot[0] += (model(x).argmax(1) == y).sum()
        tot[1] += len(y)
    dist.all_reduce(tot)
    model.train()
    return (tot[0] / tot[1]).item()


for epoch in range(3):
    train_sampler.set_epoch(epoch)
    for x, y in train_loader:
        opt.zero_grad()
        loss_fn(ddp(x), y).backward()
        opt.step()
    swa.update_parameters(net)
    swa_sched.step()
    # running statistics of the averaged weights
    update_bn(train_loader, swa)
    acc = evaluate(swa)
    if RANK == 0:
        print(f"epoch {epoch} swa acc {acc:.3f}")
        torch.save(swa.module.state_dict(), "swa.pt")
dist.destroy_process_group()
