"""An embedding is frozen after the wrapper was made, which waits for its gradient: its bucket is no longer reduced."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, words):
        return self.head(self.embed(words).mean(dim=1))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randint(0, 20, (64, 5)), torch.randint(0, 3, (64,)))
    model = DistributedDataParallel(Tagger())
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        if epoch == 1:  # fine-tune the head
            model.module.embed.requires_grad_(False)
        for words, tags in DataLoader(data, batch_size=8, sampler=sampler):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(words), tags).backward()
            optimizer.step()
    dist.destroy_process_group()


main()
