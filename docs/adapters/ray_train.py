"""Ray Train: the module of prepare_model(), and the samples of prepare_data_loader(). by_ray.py starts the ranks."""

from ddpcheck import TYPICAL
from ddpcheck.pytorch.adapter import torch_adapter


def started(context):
    """Ray has started torch's process group."""


def wrap(module):
    from ray.train.torch import prepare_model

    return prepare_model(module)


class Loader:
    def __init__(self, length, shuffle, seed):
        from ray.train.torch import prepare_data_loader
        from torch import Generator
        from torch.utils.data import DataLoader

        seeded = Generator().manual_seed(seed)  # the only seed of a loader
        loader = DataLoader(range(length), shuffle=shuffle and length > 0, generator=seeded)
        self.sampler = prepare_data_loader(loader).sampler

    def set_epoch(self, epoch):
        if hasattr(self.sampler, "set_epoch"):  # one worker has torch's plain sampler
            self.sampler.set_epoch(epoch)

    def __iter__(self):
        return iter(self.sampler)

    def __len__(self):
        return len(self.sampler)


def sampler(length, *, shuffle, seed, drop_last):
    return Loader(length, shuffle, seed)  # a loader's drop_last counts batches, not samples


adapter = torch_adapter("ray_train", wrap, start=started)
loader = torch_adapter("ray_loader", sampler=sampler, capabilities=TYPICAL.but(drop_last=False), start=started)
