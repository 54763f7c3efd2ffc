"""Hugging Face Datasets: shuffle(), then split_dataset_by_node()."""

from ddpcheck import TYPICAL
from ddpcheck.pytorch.adapter import torch_adapter


class Split:
    def __init__(self, length, shuffle, seed):
        self.length, self.shuffle, self.seed = length, shuffle, seed
        self.set_epoch(0)

    def set_epoch(self, epoch):
        import torch.distributed as dist
        from datasets import Dataset
        from datasets.distributed import split_dataset_by_node

        every = Dataset.from_dict({"sample": list(range(self.length))})
        if self.shuffle:
            every = every.shuffle(seed=(self.seed * 1_000_003 + epoch) % 2**32)
        self.own = split_dataset_by_node(every, dist.get_rank(), dist.get_world_size())["sample"]

    def __iter__(self):
        return iter(self.own)

    def __len__(self):
        return len(self.own)


def sampler(length, *, shuffle, seed, drop_last):
    return Split(length, shuffle, seed)


promises = TYPICAL.but(remainder="uneven", drop_last=False, few_samples="refused")
adapter = torch_adapter("datasets", sampler=sampler, capabilities=promises)
