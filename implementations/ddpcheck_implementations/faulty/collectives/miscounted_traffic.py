"""Collectives whose traffic counters are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ddpcheck.contract import TYPICAL
from ddpcheck.contract.adapter import Facets
from ddpcheck.contract.rank_context import RankContext

from ..registry import connecting

ALONE = "check_traffic_counters_of_a_single_rank_are_zero"
TOLD = "check_traffic_counters_match_bytes_sent"

_miscounting = connecting(TYPICAL.of_facets("collectives").but(counts_traffic=True))


@_miscounting("elements-counted-as-bytes", TOLD, cause="counts-scaled")
def elements_for_bytes(context: RankContext) -> Facets:
    """counts() reports elements where it should report bytes."""
    from ...numpy_sockets import tcp

    reference = tcp.connect(context)

    def counts() -> dict[str, int]:
        assert reference.counts is not None
        return {**reference.counts(), "bytes": reference.counts()["bytes"] // np.dtype(np.float32).itemsize}

    return replace(reference, counts=counts)


@_miscounting("calls-counted-for-messages", ALONE, cause="counts-from-nonzero", world_size=1)
def calls_counted(context: RankContext) -> Facets:
    """counts() reports one message for each collective, even at world size 1."""
    from ...numpy_sockets import tcp

    reference = tcp.connect(context)
    own = reference.counts
    assert own is not None

    def counts() -> dict[str, int]:
        told = own()
        return {**told, "messages": max(told["messages"], told["collectives"])}

    return replace(reference, counts=counts)


class _Uncounted:
    """Collectives that leave one method's calls out of one count, if hides(arguments) is true. hidden: the total left out."""

    def __init__(self, reference: Facets, method: str, of: str, hides: Callable[..., bool]) -> None:
        self._of, self._hides = of, hides
        self._collectives: Any = reference.collectives
        self._counts, self._method = reference.counts, method
        self.hidden = 0

    def __getattr__(self, name: str) -> Any:
        given = getattr(self._collectives, name)
        if name != self._method:
            return given

        def call(*args: Any, **options: Any) -> Any:
            before = self.told()
            result = given(*args, **options)
            if self._hides(*args, **options):
                self.hidden += self.told() - before
            return result

        return call

    def told(self) -> int:
        assert self._counts is not None
        return self._counts()[self._of]


def _all(*_args: Any, **_options: Any) -> bool:
    return True


def _not_counting(reference: Facets, method: str, of: str = "bytes", hides: Callable[..., bool] = _all) -> Facets:
    """The reference with one count that leaves out a method's calls, or some of them."""
    uncounted = _Uncounted(reference, method, of, hides)

    def counts() -> dict[str, int]:
        assert reference.counts is not None
        return {**reference.counts(), of: uncounted.told() - uncounted.hidden}

    return replace(reference, collectives=uncounted, counts=counts)


@_miscounting(
    "reductions-in-place-not-counted",
    TOLD,
    cause="sending-not-counted",
    in_place=True,
)
def in_place_uncounted(context: RankContext) -> Facets:
    """counts() omits all-reduces in place."""
    from ...numpy_sockets import connect

    return _not_counting(connect(context), "all_reduce_in_place")


@_miscounting("broadcasts-not-counted", TOLD, cause="sending-not-counted")
def broadcasts_uncounted(context: RankContext) -> Facets:
    """counts() omits broadcasts."""
    from ...numpy_sockets import tcp

    return _not_counting(tcp.connect(context), "broadcast")


@_miscounting("groups-not-counted", TOLD, cause="sending-not-counted", subgroups=True)
def groups_uncounted(context: RankContext) -> Facets:
    """counts() omits collectives in groups, which use separate connections."""
    from ...numpy_sockets import tcp

    return _not_counting(
        tcp.connect(context), "all_reduce", hides=lambda *_, **options: options.get("group") is not None
    )


@_miscounting("small-reductions-not-counted", TOLD, cause="sending-not-counted", world_size=3)
def small_uncounted(context: RankContext) -> Facets:
    """counts() omits all-reduces of small arrays, which use a separate path."""
    from ...numpy_sockets import connect

    return _not_counting(connect(context), "all_reduce", hides=lambda array, *_, **__: array.nbytes <= 1 << 16)


@_miscounting(
    "messages-of-rings-not-counted",
    TOLD,
    cause="messages-not-counted",
)
def messages_uncounted(context: RankContext) -> Facets:
    """counts() reports the bytes of a ring all-reduce but not its messages."""
    from ...numpy_sockets import tcp

    return _not_counting(tcp.connect(context), "all_reduce", "messages", lambda array, *_, **__: array.nbytes > 1 << 16)


@_miscounting("asynchronous-ones-not-counted", TOLD, cause="call-not-counted", asynchronous=True)
def asynchronous_uncounted(context: RankContext) -> Facets:
    """counts() omits asynchronous calls from the number of collectives."""
    from ...numpy_sockets import connect

    return _not_counting(connect(context), "all_reduce_async", "collectives")


@_miscounting("reductions-in-place-counted-in-part", TOLD, cause="sending-partly-counted", in_place=True)
def in_place_partly_counted(context: RankContext) -> Facets:
    """counts() reports only a quarter of the bytes of an all-reduce in place."""
    from ...numpy_sockets import connect

    reference = connect(context)
    uncounted = _Uncounted(reference, "all_reduce_in_place", "bytes", _all)

    def counts() -> dict[str, int]:
        assert reference.counts is not None
        return {**reference.counts(), "bytes": uncounted.told() - uncounted.hidden * 3 // 4}

    return replace(reference, collectives=uncounted, counts=counts)
