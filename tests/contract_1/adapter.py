"""An adapter as written when contract 1 was frozen. It must never be changed: a test shows that it still works.

An all-reduce over multiprocessing.connection, a sampler in blocks and a mean of metrics, without other parts of
ddpcheck.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Client, Listener

import numpy as np

from ddpcheck import Adapter, Capabilities, Facets
from ddpcheck.contract import CollectivePromises, Determinism, MetricPromises, SamplerPromises, WorldPromises


class Star:
    def __init__(self, context):
        address = (context.master_addr, context.master_port)
        self.rank, self.world_size, self.links = context.rank, context.world_size, {}
        if self.rank:
            self.links[0] = dial(address)
            self.links[0].send(self.rank)
        elif self.world_size > 1:
            with Listener(address, backlog=self.world_size) as listener:
                for link in [listener.accept() for _ in range(1, self.world_size)]:
                    self.links[link.recv()] = link

    def exchange(self, value):
        """Every rank's value, in rank order, on every rank."""
        if self.rank:
            self.links[0].send(value)
            return self.links[0].recv()
        values = [value] + [self.links[rank].recv() for rank in sorted(self.links)]
        for link in self.links.values():
            link.send(values)
        return values

    def all_reduce(self, array, op="sum", *, group=None):
        total = np.sum(self.exchange(np.array(array)), axis=0, dtype=array.dtype)
        return (total / self.world_size if op == "mean" else total).astype(array.dtype).reshape(array.shape)

    def broadcast(self, array, root=0, *, group=None):
        return self.exchange(np.array(array))[root]

    def all_gather(self, array, *, group=None):
        return np.stack(self.exchange(np.array(array)))

    def barrier(self, *, group=None):
        self.exchange(None)

    def mean(self, metrics, count):
        told = self.exchange((dict(metrics), count))
        counted = sum(each for _, each in told)
        return (
            {name: sum(values[name] * each for values, each in told if each) / counted for name in metrics}
            if counted
            else {}
        )

    def close(self):
        for link in self.links.values():
            link.close()


def dial(address):
    until = time.monotonic() + 30
    while True:
        try:
            return Client(address)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


class Blocks:
    def __init__(self, star, length, shuffle, seed, drop_last):
        self.star, self.length, self.shuffle, self.seed, self.drop_last, self.epoch = (
            star,
            length,
            shuffle,
            seed,
            drop_last,
            0,
        )

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        whole, rest = divmod(self.length, self.star.world_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self):
        order = np.arange(self.length)
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(self.length)
        size = len(self)
        padded = np.resize(order, size * self.star.world_size) if self.length else order
        return iter(padded[self.star.rank * size :][:size].tolist())


def connect(context):
    star = Star(context)
    return Facets(
        rank=star.rank,
        world_size=star.world_size,
        collectives=star,
        make_sampler=lambda length, *, shuffle, seed, drop_last: Blocks(star, length, shuffle, seed, drop_last),
        aggregate_metrics=star.mean,
        close=star.close,
    )


adapter = Adapter(
    "contract_1",
    connect,
    Capabilities(
        world=WorldPromises(determinism=Determinism.BETWEEN_RUNS),
        collectives=CollectivePromises(
            operations=frozenset({"all_reduce", "broadcast", "all_gather", "barrier"}),
            reductions=frozenset({"sum", "mean"}),
        ),
        sampler=SamplerPromises(remainder="pad", drop_last=True, shuffles=True, distinct_streams=True),
        metrics=MetricPromises(),
    ),
    contract=1,
)
