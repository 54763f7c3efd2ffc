"""A replica whose rank 0 halves the mean of the gradients."""

from ddpcheck_implementations.faulty import PlainReplica, fault


@fault("halved-on-rank-0", "check_gradients_equal_the_large_batch_exactly")
class HalvedOnRank0(PlainReplica):
    """Rank 0 keeps only half of the mean."""

    def reduce(self, name, gradient):
        mean = super().reduce(name, gradient)
        return mean / 2 if self.rank == 0 else mean
