"""Several registered faults of one replica in one adapter: this module has an attribute for each combination of
names.
"""

from __future__ import annotations

from functools import cache
from types import CodeType, FunctionType
from typing import Any

from ddpcheck.contract.adapter import Adapter, Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck_implementations.faulty import Registered, faults
from ddpcheck_implementations.faulty.base import PROMISED, PlainReplica, facets
from ddpcheck_implementations.numpy_sockets import tcp

_AND = "__and__"


@cache
def alone() -> dict[str, Registered]:
    """Faults that are a replica class of their own with the usual promises, by names that are identifiers."""
    return {
        fault.name.replace("-", "_"): fault
        for fault in faults()
        if isinstance(fault.made, type)
        and issubclass(fault.made, PlainReplica)
        and fault.adapter.capabilities == PROMISED
        and fault.cause
        and fault.world_size == 2
    }


def methods(fault: Registered) -> frozenset[str]:
    """The methods that the fault overrides."""
    kinds = [kind for kind in fault.made.__mro__ if issubclass(kind, PlainReplica) and kind is not PlainReplica]
    return frozenset(name for kind in kinds for name, value in vars(kind).items() if callable(value))


def fit_together(chosen: list[Registered]) -> bool:
    """Whether no fault overrides another's methods or leaves out their calls, and each has its own module and cause."""
    every = [name for fault in chosen for name in methods(fault)]
    apart = (len({fault.cause for fault in chosen}), len({fault.module for fault in chosen}))
    uncalled = {name for fault in chosen for name in calls_left_out(fault)}
    return len(set(every)) == len(every) and apart == (len(chosen), len(chosen)) and not uncalled & set(every)


def calls_left_out(fault: Registered) -> frozenset[str]:
    """The names that methods of the correct replica use, and that the fault's own in their place do not. A fault that
    overrides one of them would not show beside this fault.
    """
    kinds = [kind for kind in fault.made.__mro__ if issubclass(kind, PlainReplica) and kind is not PlainReplica]
    own = [each for kind in kinds for each in vars(kind).values() if isinstance(each, FunctionType)]
    left_out: set[str] = set()
    for method in own:
        right = vars(PlainReplica).get(method.__name__)
        # a fault of the engine is a closure around the right method
        if isinstance(right, FunctionType) and "<locals>" not in method.__qualname__ and "super" not in _names(method):
            left_out |= _names(right)
    return frozenset(left_out.difference(*map(_names, own)))


def _names(function: FunctionType) -> frozenset[str]:
    """All names that the function uses, also inside comprehensions."""
    codes = [function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(name for code in codes for name in code.co_names)


def reference(chosen: list[Registered]) -> str:
    """The adapter with all these faults."""
    names = {fault.name: name for name, fault in alone().items()}
    return f"{__name__}:{_AND.join(names[fault.name] for fault in chosen)}"


def __getattr__(name: str) -> Any:
    parts = name.split(_AND)
    if not set(parts) <= alone().keys():
        raise AttributeError(name)
    kind = type(name, tuple(alone()[part].made for part in parts), {})

    def connect(context: RankContext) -> Facets:
        ring = tcp.connect(context)
        return facets(kind, ring.collectives, context.rank, context.world_size, ring.close)

    adapter = Adapter(name, connect, PROMISED)
    globals()[name] = adapter
    return adapter
