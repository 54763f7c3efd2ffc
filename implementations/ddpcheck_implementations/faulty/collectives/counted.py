"""Traffic that is told otherwise than it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ddpcheck.adapter import Facets
from ddpcheck.capabilities import Capabilities
from ddpcheck.environment import RankContext

from ..registry import register

ALONE = "check_a_rank_alone_counts_nothing_sent"
TOLD = "check_traffic_is_counted_as_it_is_sent"


def _counting_elements(context: RankContext) -> Facets:
    """Elements are counted where bytes should be."""
    from ...numpy_sockets import tcp

    reference = tcp.connect(context)

    def counts() -> dict[str, int]:
        assert reference.counts is not None
        return {**reference.counts(), "bytes": reference.counts()["bytes"] // np.dtype(np.float32).itemsize}

    return replace(reference, counts=counts)


elements_for_bytes = register(
    "elements-counted-as-bytes",
    "classic",
    (TOLD,),
    "0.25 x what goes out",
    2,
    _counting_elements,
    _counting_elements,
    Capabilities(facets=frozenset({"collectives"}), counts_traffic=True),
)


def _counting_calls(context: RankContext) -> Facets:
    """Each collective counts for a message, though a rank is alone."""
    from ...numpy_sockets import tcp

    reference = tcp.connect(context)
    own = reference.counts
    assert own is not None

    def counts() -> dict[str, int]:
        told = own()
        return {**told, "messages": max(told["messages"], told["collectives"])}

    return replace(reference, counts=counts)


calls_counted = register(
    "calls-counted-for-messages",
    "mutation of numpy_sockets",
    (ALONE,),
    "does not begin at zero",
    1,
    _counting_calls,
    _counting_calls,
    Capabilities(facets=frozenset({"collectives"}), counts_traffic=True),
)


class _Uncounted:
    """Collectives of which one method's calls with arguments that `hides` are kept out of one of the counts: `hidden` in all."""

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
    """The reference, of whose counts one leaves out the calls of a method, or only some."""
    uncounted = _Uncounted(reference, method, of, hides)

    def counts() -> dict[str, int]:
        assert reference.counts is not None
        return {**reference.counts(), of: uncounted.told() - uncounted.hidden}

    return replace(reference, collectives=uncounted, counts=counts)


def _not_counting_in_place(context: RankContext) -> Facets:
    """Only the calls that return a new array are counted."""
    from ...numpy_sockets import connect

    return _not_counting(connect(context), "all_reduce_in_place")


in_place_uncounted = register(
    "reductions-in-place-not-counted",
    "mutation of numpy_sockets",
    (TOLD,),
    "it does not count this way of sending",
    2,
    _not_counting_in_place,
    _not_counting_in_place,
    Capabilities(facets=frozenset({"collectives"}), counts_traffic=True, in_place=True),
)


def _not_counting_broadcasts(context: RankContext) -> Facets:
    """A broadcast is passed on as it comes, beside the counters."""
    from ...numpy_sockets import tcp

    return _not_counting(tcp.connect(context), "broadcast")


broadcasts_uncounted = register(
    "broadcasts-not-counted",
    "classic",
    (TOLD,),
    "but counts() tells 0",
    2,
    _not_counting_broadcasts,
    _not_counting_broadcasts,
    Capabilities(facets=frozenset({"collectives"}), counts_traffic=True),
)


def _not_counting_groups(context: RankContext) -> Facets:
    """Groups have connections of their own, which have no counters."""
    from ...numpy_sockets import tcp

    return _not_counting(
        tcp.connect(context), "all_reduce", hides=lambda *_, **options: options.get("group") is not None
    )


groups_uncounted = register(
    "groups-not-counted",
    "classic",
    (TOLD,),
    "but counts() tells 0",
    2,
    _not_counting_groups,
    _not_counting_groups,
    Capabilities(facets=frozenset({"collectives"}), counts_traffic=True, subgroups=True),
)


def _not_counting_small(context: RankContext) -> Facets:
    """Small arrays go a way of their own, which has no counters."""
    from ...numpy_sockets import connect

    return _not_counting(connect(context), "all_reduce", hides=lambda array, *_, **__: array.nbytes <= 1 << 16)


small_uncounted = register(
    "small-reductions-not-counted",
    "mutation of numpy_sockets",
    (TOLD,),
    "it does not count this way of sending",
    3,
    _not_counting_small,
    _not_counting_small,
    Capabilities(facets=frozenset({"collectives"}), counts_traffic=True),
)


def _not_counting_messages(context: RankContext) -> Facets:
    """The messages of a ring are not counted, though their bytes are."""
    from ...numpy_sockets import tcp

    return _not_counting(tcp.connect(context), "all_reduce", "messages", lambda array, *_, **__: array.nbytes > 1 << 16)


messages_uncounted = register(
    "messages-of-rings-not-counted",
    "mutation of numpy_sockets",
    (TOLD,),
    "it does not count the messages of this way of sending",
    2,
    _not_counting_messages,
    _not_counting_messages,
    Capabilities(facets=frozenset({"collectives"}), counts_traffic=True),
)


def _not_counting_asynchronous(context: RankContext) -> Facets:
    """Only the calls that wait for their result count for collectives."""
    from ...numpy_sockets import connect

    return _not_counting(connect(context), "all_reduce_async", "collectives")


asynchronous_uncounted = register(
    "asynchronous-ones-not-counted",
    "mutation of numpy_mpi",
    (TOLD,),
    "it does not count this way of calling",
    2,
    _not_counting_asynchronous,
    _not_counting_asynchronous,
    Capabilities(facets=frozenset({"collectives"}), counts_traffic=True, asynchronous=True),
)
