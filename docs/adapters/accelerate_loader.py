"""Hugging Face Accelerate: the samples of this rank in a DataLoader that prepare_data_loader() has shared out."""

from ddpcheck import TYPICAL
from ddpcheck.pytorch.adapter import torch_adapter


class Loader:
    def __init__(self, length, shuffle, seed, drop_last):
        from accelerate.data_loader import prepare_data_loader
        from torch.distributed import get_rank, get_world_size
        from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

        order = RandomSampler(range(length)) if shuffle and length else SequentialSampler(range(length))
        self.loader = prepare_data_loader(
            DataLoader(range(length), sampler=order, batch_size=1, drop_last=drop_last),
            num_processes=get_world_size(),
            process_index=get_rank(),
            use_seedable_sampler=True,
            data_seed=seed,
        )
        self.set_epoch(0)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        self.loader.set_epoch(self.epoch)  # which goes on by itself otherwise
        return (sample for batch in self.loader.batch_sampler for sample in batch)

    def __len__(self):
        return len(self.loader)


def sampler(length, *, shuffle, seed, drop_last):
    return Loader(length, shuffle, seed, drop_last)


adapter = torch_adapter("accelerate_loader", sampler=sampler, capabilities=TYPICAL)
