"""Sets of promises: optional methods, call forms and rules. Each member is a promise of its own, with its own sentence.

    ReplicaPromises(replica_methods={ReplicaMethod.NO_SYNC, ReplicaMethod.CLIPPING})
    TORCH_PROMISES.but(no_sync=False)    # one member, by its name

A member's name is unique over all promises: `Capabilities.but`, `Facets.lacks` and needs.py know it by this name.
"""

from __future__ import annotations

from enum import EnumType, StrEnum
from typing import TYPE_CHECKING, NoReturn, Self

from .unknown_promises import nearest


class _Naming(EnumType):
    """Names the nearest member in errors for misspelt members."""

    if not TYPE_CHECKING:  # type checkers report misspelt members themselves

        def __getattr__(cls, name: str) -> NoReturn:
            near = "" if name.startswith("_") else nearest(name, cls.__members__)
            raise AttributeError(f"{cls.__name__} has no member {name!r}{near}")


class Member(StrEnum, metaclass=_Naming):
    """A promise that is a member of a set."""

    sentence: str

    def __new__(cls, name: str, sentence: str) -> Self:
        made = str.__new__(cls, name)
        made._value_ = name
        made.sentence = sentence
        return made

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(f"{cls.__name__} has no member {value!r}{nearest(str(value), list(cls))}")


class FailureRule(Member):
    """Rules for ranks that fail, call different collectives, or close."""

    DETECTS_DEAD_PEER = (
        "detects_dead_peer",
        "When a rank's process dies, every other rank raises an error instead of waiting for ever. This holds even if ranks "
        "that raised first stay alive with open connections.",
    )
    DETECTS_FAILED_PEER = (
        "detects_failed_peer",
        "When a rank's program ends with an exception, closed or not, its process ends and every other rank raises.",
    )
    DETECTS_MISMATCH = (
        "detects_mismatch",
        "When ranks call different collectives, or use different dtypes, sizes, reductions or roots, every rank raises an "
        "error in this call or in one of the next. At least one error names the rank's own call and the call received.",
    )
    GIVES_BACK = (
        "gives_back",
        "After close() a process has no more sockets, pipes, threads and child processes than before connect(). After all "
        "ranks have closed, no temporary file and no named shared memory remains.",
    )


class RendezvousRule(Member):
    """Rules for the start of worlds."""

    RESTARTS_IN_PLACE = (
        "restarts_in_place",
        "A new world can start at the MASTER_ADDR and MASTER_PORT of a killed one, and receives nothing from it.",
    )
    SHARES_HOST = (
        "shares_host",
        "Worlds with different MASTER_PORT can run on one host at once, without affecting each other.",
    )
    ANY_LAYOUT = (
        "any_layout",
        "LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK may describe several hosts although all ranks run on one. The ranks still "
        "connect and give the same results: these variables change only the speed, or the device.",
    )
    CLOSED_TO_STRANGERS = (
        "closed_to_strangers",
        "Ranks listen on the interface of MASTER_ADDR only. A connection from outside the world becomes no rank, delays "
        "no rank, and none of its data is executed.",
    )


class CallForm(Member):
    """Forms in which collectives can be called, beside the plain one."""

    SUBGROUPS = "subgroups", "Collectives take a group of ranks, and only its members call them."
    ASYNCHRONOUS = "asynchronous", "all_reduce can return a handle at once; wait() on it gives the result."
    IN_PLACE = (
        "in_place",
        "all_reduce_in_place() reduces into its argument, or raises on every rank if that is not contiguous; empty() gives "
        "arrays that the transport reaches best.",
    )


class FloatRule(Member):
    """Rules for floats that are rounded, tiny or NaN."""

    ROUNDS_FLOAT16_ONCE = (
        "rounds_float16_once",
        "Sums and means of float16 are computed in float32 or wider, and rounded once.",
    )
    KEEPS_TINY_VALUES = (
        "keeps_tiny_values",
        "Values near the smallest of their dtype are not flushed to zero: their sums are exact, and a mean divides the sum.",
    )
    PROPAGATES_NAN = (
        "propagates_nan",
        "min and max give NaN wherever any rank has a NaN. MPI and Gloo do not guarantee this.",
    )


class ReplicaMethod(Member):
    """Optional methods of replicas. adapter.py and optional_methods.py document them."""

    NO_SYNC = (
        "no_sync",
        "Inside no_sync() backward accumulates local gradients and does not communicate.",
    )
    CLIPPING = "clipping", "clip() clips by the global norm of the synchronised gradients."
    CHECKPOINT = (
        "checkpoint",
        "state() on one replica, load_state() on a new one, continue the same training.",
    )
    UNFREEZING = (
        "unfreezing",
        "set_trainable() freezes and unfreezes layers; those unfrozen are synchronised from then on.",
    )
    ZEROES_GRADIENTS = (
        "zeroes_gradients",
        "zero_gradients() sets existing gradients to zero, and leaves those that are None.",
    )
    AVERAGED_WEIGHTS = (
        "averaged_weights",
        "averaged() is OptimizerSpec's moving average of the parameters, the same on all ranks.",
    )
    TWO_FORWARDS = (
        "two_forwards",
        "backward_of_both() runs two forward passes, then one backward: the gradients of both batches are summed.",
    )
    REMEASURES_STATISTICS = (
        "remeasures_statistics",
        "remeasure() replaces batch norm's running statistics with those of all ranks' samples, equally weighted.",
    )
    TIMELINE = (
        "timeline",
        "timeline() reports when the last backward computed, and when it communicated.",
    )
