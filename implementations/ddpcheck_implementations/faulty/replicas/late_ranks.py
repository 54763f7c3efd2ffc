"""Replicas that do not wait for a late rank."""

from __future__ import annotations

from threading import Thread

from ddpcheck.seeded_values import Array

from ..base import PlainReplica, added, fault

PATIENCE = 0.03
"""Seconds to wait for a reduction."""


@fault("late-rank-not-waited-for", "check_backward_waits_for_late_ranks", cause="not-reduced")
class NotWaitedFor(PlainReplica):
    """A rank whose reduction does not arrive in time continues with its local gradient."""

    between_processes = True
    sending: Thread | None = None

    def synchronise(self, batch_size: int) -> None:
        reduced = {name: self.reduce(name, self.mine(name)) for name in self.network.learned}
        if self.sending is not None:
            self.sending.join()  # the exchange of the used names begins when the late rank has come
        self.synced = added(self.synced, {name: reduced[name] for name in self.used_somewhere()})
        self.local = {}

    def reduce(self, name: str, gradient: Array) -> Array:
        found: list[Array] = []
        if self.sending is not None:
            self.sending.join()
        self.sending = Thread(target=lambda: found.append(PlainReplica.reduce(self, name, gradient)))
        self.sending.start()
        self.sending.join(PATIENCE)
        return found[0] if found else gradient
