"""Names are sorted by language with a GRU over letters: batches are padded, dropout is on, and windows are collected first."""

import argparse
import itertools
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

LETTERS, LANGUAGES = 27, 4


class Names(Dataset):
    """Each language prefers a few letters."""

    def __init__(self, number):
        source = random.Random(11)
        self.samples = []
        for _ in range(number):
            language = source.randrange(LANGUAGES)
            favourites = range(1 + 5 * language, 9 + 5 * language)
            letters = [source.choice(favourites) for _ in range(source.randint(2, 12))]
            self.samples.append((torch.tensor(letters), language))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def padded(samples):
    letters, languages = zip(*samples, strict=True)
    lengths = torch.tensor([len(each) for each in letters])
    return pad_sequence(letters, batch_first=True), lengths, torch.tensor(languages)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, 12, padding_idx=0)
        self.dropout = nn.Dropout(0.2)
        self.memory = nn.GRU(12, 20, batch_first=True)
        self.language = nn.Linear(20, LANGUAGES)

    def forward(self, letters, lengths):
        states, _ = self.memory(self.dropout(self.letters(letters)))
        last = states[torch.arange(len(lengths)), lengths - 1]
        return self.language(self.dropout(last))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--window", type=int, default=2)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100)
    model = DistributedDataParallel(Classifier())
    torch.manual_seed(100 + rank)
    names = Names(152)
    sampler = DistributedSampler(names)
    loader = DataLoader(names, 4, sampler=sampler, collate_fn=padded)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        batches = iter(loader)
        for _ in range(len(loader) // options.window):
            for letters, lengths, languages in list(itertools.islice(batches, options.window)):
                loss = nn.functional.cross_entropy(model(letters, lengths), languages)
                (loss / options.window).backward()
            optimizer.step()
            optimizer.zero_grad()
        left = sum(1 for _ in batches)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, {left} batches not used", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
