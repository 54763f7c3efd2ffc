"""A check of one's own: the sum of arrays of ones is the world size. `python my_checks.py ADAPTER` runs it alone."""

import sys

import numpy as np

from ddpcheck import Finding, Job, Session, assertions, law
from ddpcheck.contract import needs
from ddpcheck.job import AllReduce, TensorSpec


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.reductions("mean"), needs.ranks(2))
def check_all_reduce_mean_lies_between_extremes(session):
    """The mean of an all-reduce is no larger than the largest and no smaller than the smallest of the ranks' values."""
    tensor = TensorSpec((64,))
    trace = session.run(Job(session.world_size, (AllReduce(tensor, "mean"),)))
    assertions.completed(trace)
    given = np.stack([tensor.on(rank) for rank in range(session.world_size)])
    for rank in trace.ranks:
        mean = rank.values(0)["result"]
        assertions.that(
            bool(np.all((given.min(0) <= mean) & (mean <= given.max(0)))),
            f"mean on rank {rank.rank}: got {mean[0]}, but should lie between {given.min(0)[0]} and {given.max(0)[0]}",
        )


if __name__ == "__main__":
    with Session(sys.argv[1], world_size=2) as session:
        try:
            check_all_reduce_mean_lies_between_extremes(session)
            print("passed")
        except Finding as finding:
            print(finding)
