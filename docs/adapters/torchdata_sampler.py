"""torchdata's StatefulDistributedSampler, whose state holds how far it is, but not in which epoch: the caller adds that."""

import numpy as np

from ddpcheck import TYPICAL
from ddpcheck.pytorch.adapter import torch_adapter


def sampler(length, *, shuffle, seed, drop_last):
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    class Resumable(StatefulDistributedSampler):
        def state(self):
            return {"yielded": np.array(self.state_dict()["yielded"]), "epoch": np.array(self.epoch)}

        def load_state(self, state):
            self.set_epoch(int(state["epoch"]))
            self.load_state_dict({"yielded": int(state["yielded"])})

    return Resumable(range(length), shuffle=shuffle, seed=seed, drop_last=drop_last)


adapter = torch_adapter("torchdata", sampler=sampler, capabilities=TYPICAL.but(sampler_state=True))
