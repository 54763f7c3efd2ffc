"""An LSTM over characters. Hooks of its parameters clamp gradients, before DistributedDataParallel averages them."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

TEXT = (
    "the quick brown fox jumps over the lazy dog while seven wizards quietly mix "
    "frozen jam and every child asks whether the moon is made of cheese or stone "
) * 30
VOCAB = sorted(set(TEXT))
INDEX = {c: i for i, c in enumerate(VOCAB)}


class Windows(Dataset):
    def __init__(self, length=20, stride=9):
        codes = torch.tensor([INDEX[c] for c in TEXT])
        starts = range(0, len(codes) - length - 1, stride)
        self.items = [(codes[s : s + length], codes[s + 1 : s + length + 1]) for s in starts]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class CharModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(VOCAB), 16)
        self.rnn = nn.LSTM(16, 32, batch_first=True)
        self.out = nn.Linear(32, len(VOCAB))

    def forward(self, x):
        h, _ = self.rnn(self.embed(x))
        return self.out(h)


def clamp_gradients(model, limit):
    for p in model.parameters():
        p.register_hook(lambda g: torch.clamp(g, -limit, limit))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    data = Windows()
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    net = CharModel()
    clamp_gradients(net, 0.005)
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        running = torch.zeros(2)
        for x, y in loader:
            opt.zero_grad()
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            loss.backward()
            opt.step()
            running += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(running)
        if dist.get_rank() == 0:
            print("epoch", epoch, (running[0] / running[1]).item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
