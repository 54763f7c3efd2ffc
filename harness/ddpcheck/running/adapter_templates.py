"""Starter adapters: each works unchanged, around a small example that the user replaces."""

from __future__ import annotations

from collections.abc import Callable


def torch(name: str) -> str:
    """A torch wrapper, with an all-reduce for each parameter as the example."""
    return _TORCH.replace("NAME", name)


def numpy(name: str) -> str:
    """A communicator for NumPy arrays, with an all-reduce over pipes as the example."""
    return _NUMPY.replace("NAME", name)


def trainer(name: str) -> str:
    """A loop that owns the training run. Its place is marked; a check names it until it is filled in."""
    return _TRAINER.replace("NAME", name)


KINDS: dict[str, Callable[[str], str]] = {"torch": torch, "numpy": numpy, "trainer": trainer}
"""The function that writes each kind of template, by name."""

_TORCH = '''"""The adapter of NAME: check it with  ddpcheck check NAME.py:adapter --level basic"""

import torch.distributed as dist
from torch import nn

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter


class Wrapper(nn.Module):
    """FILL IN: delete this example, and import your own wrapper."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.detach(), 0)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.average)

    def average(self, parameter):
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()

    def forward(self, *inputs):
        return self.module(*inputs)


adapter = torch_adapter(
    "NAME",
    # FILL IN: what wraps a module. Further parameters of this function are options, such as bucket_cap_mb.
    wrap=lambda module: Wrapper(module),
    # Every promise is checked; other checks are visible skips. no_sync() is checked if the wrapper has it.
    # ddpcheck list capabilities shows every promise, and ddpcheck suggest NAME.py:adapter those that seem to hold.
    capabilities=TORCH_PROMISES,
    # If gradients are averaged by an explicit call and not in backward:
    # after_backward=lambda wrapper: wrapper.synchronise(),
    # If the communication is not torch.distributed's:
    # start=lambda context: my_library.init(),
    # place=lambda context: (my_library.rank(), my_library.world_size()),
)
'''

_PIPES = '''class Pipes:
    """FILL IN: delete this example, and use your own communicator. Rank 0 sums the other ranks' arrays."""

    def __init__(self, context):
        place = (context.master_addr, context.master_port)
        self.rank, self.size = context.rank, context.world_size
        if self.rank:
            self.links = [self.dial(place)]
        else:
            with Listener(place, backlog=64) as listener:
                links = [listener.accept() for _ in range(1, self.size)]
                self.links = [link for _, link in sorted((link.recv(), link) for link in links)]

    def dial(self, place):
        while True:  # rank 0 may be late
            try:
                link = Client(place)
            except ConnectionRefusedError:
                time.sleep(0.01)
            else:
                link.send(self.rank)
                return link

    def all_reduce(self, array, op="sum", *, group=None):
        if self.rank:
            self.links[0].send(array)
            return np.asarray(self.links[0].recv())
        total = np.array(array)
        for link in self.links:
            total += link.recv()
        for link in self.links:
            link.send(total)
        return total
'''

_NUMPY = (
    '''"""The adapter of NAME: check it with  ddpcheck check NAME.py:adapter --level basic"""

import time
from multiprocessing.connection import Client, Listener

import numpy as np

from ddpcheck import Adapter, Capabilities, CollectivePromises, Facets


'''
    + _PIPES
    + '''

def connect(context):
    """Called once on every rank. FILL IN: connect yours; context has rank, world_size, master_addr and master_port."""
    pipes = Pipes(context)
    # The rank and the world size are those that your communicator has itself: the harness compares them.
    return Facets(rank=pipes.rank, world_size=pipes.size, collectives=pipes)


adapter = Adapter(
    "NAME",
    connect,
    Capabilities(
        collectives=CollectivePromises(
            # FILL IN: all that yours has, of all_reduce, broadcast, all_gather, reduce_scatter, barrier, send_recv.
            operations={"all_reduce"},
            # ... and of sum, mean, min, max, prod.
            reductions={"sum"},
            dtypes={"float32", "float64"},
        ),
    ),
)
# ddpcheck list capabilities shows every promise, and ddpcheck suggest NAME.py:adapter those that seem to hold.
'''
)

_TRAINER = (
    '''"""The adapter of NAME: check it with  ddpcheck check NAME.py:adapter -c trainer -w 1,2"""

import time
from multiprocessing.connection import Client, Listener

import numpy as np

from ddpcheck import Adapter, Capabilities, Facets, ReplicaPromises, ReplicaSync, TrainerPromises
from ddpcheck.contract.trainer import TrainingRun


'''
    + _PIPES
    + '''

def connect(context):
    """Called once on every rank. FILL IN: connect yours; context has rank, world_size, master_addr and master_port."""
    pipes = Pipes(context)
    return Facets(rank=pipes.rank, world_size=pipes.size, train=lambda task: train(pipes, task))


def train(pipes, task):
    """A whole run, as TrainingTask says (harness/ddpcheck/contract/trainer.py).

    FILL IN: task.model declares the layers, task.initial has this rank's values of them by name, task.inputs and
    task.targets are the whole data set, of which this rank trains on its share.
    """
    raise NotImplementedError("NAME.py, train(): build task.model in your framework, run your loop, and return the rest")
    return TrainingRun(
        parameters={},  # by the names of task.initial, as they are at the end
        losses=[],  # of each epoch, the mean over the samples of all ranks
        indices=[],  # of each epoch, the samples that this rank used, in their order
    )


adapter = Adapter(
    "NAME",
    connect,
    Capabilities(
        trainer=TrainerPromises(),
        # FILL IN: which layers, dtypes and optimizers your loop can train; the facet replica itself is not handed out.
        replica=ReplicaPromises(optimizers={"sgd"}, replica_sync=ReplicaSync.PARAMETERS, offered=False),
    ),
)
# ddpcheck list capabilities shows every promise.
'''
)
