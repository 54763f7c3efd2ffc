"""The seam of collectives: the sockets reference with an effect in one circumstance; and the circumstances of a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import Group, PassThrough, collectives
from .circumstances import Circumstance


@dataclass(frozen=True)
class Call:
    """One call of a collective on one rank.

    kind: the method; all_reduce_async is all_reduce with asynchronous=True. op, root, group, peer: None if the method has no
    such argument. number: the call's number among calls with a result, from 1; same_kind: among calls of its kind. pending:
    number of asynchronous calls that nobody has waited for yet. before: the previous call, with its array's shape and dtype,
    but not its values.
    """

    comm: Any
    rank: int
    world: int
    kind: str
    array: Array
    op: str | None = None
    root: int | None = None
    group: Group = None
    peer: int | None = None
    asynchronous: bool = False
    number: int = 0
    same_kind: int = 0
    pending: int = 0
    before: Call | None = None

    @property
    def ranks(self) -> list[int]:
        return list(range(self.world) if self.group is None else self.group)

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def place(self) -> int:
        """This rank's index in the group."""
        return self.ranks.index(self.rank)

    def changed(self, **changes: Any) -> Call:
        return replace(self, **changes)

    def begin(self) -> Callable[[], Array]:
        """Call the reference. Returns a function that waits for the result."""
        if self.asynchronous:
            handle = self.comm.all_reduce_async(self.array, self.op, group=self.group)
            return lambda: np.asarray(handle.wait())
        result = self.run()
        return lambda: result

    def run(self) -> Array:
        """Call the reference and wait for the result."""
        if self.asynchronous:
            return np.asarray(self.begin()())
        method = getattr(self.comm, self.kind)
        if self.kind in ("recv", "send"):
            return np.asarray(method(self.array, self.peer))
        if self.kind == "barrier":
            return np.asarray(method(group=self.group))
        given = [each for each in (self.op, self.root) if each is not None]
        return np.asarray(method(self.array, *given, group=self.group))

    def gathered(self) -> Array:
        """The arrays of all ranks of the group."""
        return np.asarray(self.comm.all_gather(self.array, group=self.group))


def unchanged(call: Call) -> Call:
    return call


def as_it_is(call: Call, result: Array) -> Array:
    return result


@dataclass(frozen=True)
class CollectiveEffect:
    """sent: changes the call. got: changes its result. instead: computes a result without the call; None to make the call."""

    sent: Callable[[Call], Call] = unchanged
    got: Callable[[Call, Array], Any] = as_it_is
    instead: Callable[[Call], Any] | None = None
    register = staticmethod(collectives)

    def begin(self, call: Call) -> Callable[[], Any]:
        """Like Call.begin()."""
        if self.instead is not None:
            result = self.instead(call)
            return lambda: result
        wait = self.sent(call).begin()
        return lambda: self.got(call, wait())

    def implemented(self, where: Circumstance) -> type[Any]:
        return type("Wrong", (WrongCollectives,), {"where": where, "effect": self})


class Later:
    """A handle whose wait() calls a function, once."""

    def __init__(self, wait: Callable[[], Any]) -> None:
        self._wait, self._waited = wait, False

    def wait(self) -> Any:
        if not self._waited:
            self._result, self._waited = self._wait(), True
        return self._result


class WrongCollectives(PassThrough):
    """The reference's collectives, with the effect where the circumstance holds."""

    where: Circumstance
    effect: CollectiveEffect

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.number = self.pending = 0
        self.kinds: dict[str, int] = {}
        self.before: Call | None = None

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        return self._done(self._call("all_reduce", array, op=op, group=group))

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Later:
        call = self._call("all_reduce", array, op=op, group=group, asynchronous=True)
        self.pending += 1
        wait = self._begun(call)

        def waited() -> Any:
            self.pending -= 1
            return wait()

        return Later(waited)

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group = None) -> None:
        call = self._passed("all_reduce_in_place", array, op=op, group=group)
        if self.where(call):
            array[...] = self.effect.begin(call.changed(kind="all_reduce"))()
        else:
            super().all_reduce_in_place(array, op, group=group)

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Any:
        return self._done(self._call("broadcast", array, root=root, group=group))

    def all_gather(self, array: Array, *, group: Group = None) -> Any:
        return self._done(self._call("all_gather", array, group=group))

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        return self._done(self._call("reduce_scatter", array, op=op, group=group))

    def recv(self, array: Array, source: int) -> Any:
        return self._done(self._call("recv", array, peer=source))

    def send(self, array: Array, dest: int) -> None:
        self._done(self._passed("send", array, peer=dest))

    def barrier(self, *, group: Group = None) -> None:
        self._done(self._passed("barrier", np.empty(0), group=group))

    def _done(self, call: Call) -> Any:
        return self._begun(call)()

    def _begun(self, call: Call) -> Callable[[], Any]:
        return self.effect.begin(call) if self.where(call) else call.begin()

    def _call(self, kind: str, array: Any, **given: Any) -> Call:
        """A call with a result. Counts it."""
        self.number += 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        call = self._passed(kind, np.asarray(array), before=self.before, **given)
        self.before = call.changed(before=None, array=np.empty(call.array.shape, call.array.dtype))
        return call

    def _passed(self, kind: str, array: Array, **given: Any) -> Call:
        counted: dict[str, Any] = {"number": self.number, "same_kind": self.kinds.get(kind, 0), "pending": self.pending}
        return Call(self.comm, self.rank, self.world, kind, array, **counted, **given)


# ------------------------------------------------------------------------------------------------ which call, and where


def _kind(kind: str, text: str) -> Circumstance:
    return Circumstance(text, lambda call: call.kind == kind and not call.asynchronous)


all_reduce = _kind("all_reduce", "all-reduce")
asynchronous = Circumstance("asynchronous all-reduce", lambda call: call.asynchronous)
in_place = _kind("all_reduce_in_place", "all-reduce in place")
broadcast = _kind("broadcast", "broadcast")
all_gather = _kind("all_gather", "all-gather")
reduce_scatter = _kind("reduce_scatter", "reduce-scatter")
received = _kind("recv", "receive")
sent = _kind("send", "send")
barrier = _kind("barrier", "barrier")


def op(*names: str) -> Circumstance:
    return Circumstance(" or ".join(names), lambda call: call.op in names)


def root(place: int) -> Circumstance:
    """place: the root's index; -1 is the last rank."""
    return Circumstance(f"root {place}", lambda call: call.root is not None and call.root == place % call.world)


def every_of_kind(count: int) -> Circumstance:
    return Circumstance(f"at every {count}th call of a kind", lambda call: call.same_kind % count == 0)


def group_of(size: int) -> Circumstance:
    return Circumstance(f"in a group of {size}", lambda call: call.size == size)


in_group = Circumstance("in a group", lambda call: call.group is not None)
in_part = Circumstance("in a group of some ranks", lambda call: 1 < call.size < call.world)
without_rank_0 = Circumstance("in a group without rank 0", lambda call: call.size > 1 and 0 not in call.ranks)
in_group_of_all = Circumstance("in a group of all", lambda call: bool(call.group) and call.size == call.world)
another_kind_before = Circumstance(
    "after a call of another kind", lambda call: call.before is not None and call.before.kind != call.kind
)
another_group_before = Circumstance(
    "after a call in another group", lambda call: call.before is not None and call.before.group != call.group
)
others_pending = Circumstance("while another one is pending", lambda call: call.pending)
not_on_root = Circumstance("not on the root", lambda call: call.rank != call.root)
on_root = Circumstance("on the root", lambda call: call.rank == call.root)
