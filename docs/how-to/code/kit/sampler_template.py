"""The adapter of samplers: a submission defines the class Sampler(length, rank, world_size, shuffle, seed).

Iteration gives this rank's indices of one epoch, as many on each rank: the last ones are repeated from the front where the
length does not divide. set_epoch(epoch) chooses the order.
"""

from submission import Sampler

from ddpcheck import TYPICAL, Adapter, Facets


def connect(context):
    def make_sampler(length, *, shuffle, seed, drop_last):
        return Sampler(length, context.rank, context.world_size, shuffle, seed)

    return Facets(rank=context.rank, world_size=context.world_size, make_sampler=make_sampler)


adapter = Adapter("submission", connect, TYPICAL.of_facets("sampler").but(drop_last=False))
