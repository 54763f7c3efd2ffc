"""Launchers that report a failed rank wrongly. The implementation is correct."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import sleep
from typing import Any

from ddpcheck.contract import TYPICAL
from ddpcheck.contract.adapter import Adapter
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.launchers.launcher import Launched
from ddpcheck.launchers.processes import Processes

from ..registry import Registering

REPORTED = "check_launcher_reports_the_first_failed_rank"


class WatchedWrongly:
    """Launched processes; a fault overrides a method that watches them."""

    def __init__(self, launched: Any) -> None:
        self.launched = launched

    def __getattr__(self, name: str) -> Any:
        return getattr(self.launched, name)


@dataclass(frozen=True)
class _Launcher(Processes):
    watch: type[WatchedWrongly] = WatchedWrongly

    def start(
        self, command: Sequence[str], world_size: int, variables: Mapping[str, str], *, inherit_output: bool = False
    ) -> Launched:
        launched: Any = self.watch(super().start(command, world_size, variables, inherit_output=inherit_output))
        return launched  # type: ignore[no-any-return]  # __getattr__ passes all other methods through


def _connect(context: RankContext) -> Any:
    from ...numpy_sockets import adapter

    return replace(adapter.connect(context), make_replica=None)


def launcher(name: str, **about: Any) -> Callable[[type[WatchedWrongly]], Adapter]:
    """Register a way to watch processes as a fault."""

    def make(watch: type[WatchedWrongly]) -> Adapter:
        registering: Registering[Any] = Registering(lambda watch: _connect, TYPICAL.of_facets("collectives"))
        return registering(name, REPORTED, launcher=_Launcher(watch=watch), **about)(watch)

    return make


@launcher("launcher-waits-in-order", seen_in=("pytorch/pytorch#41067",), cause="ranks-awaited-in-order")
class WaitsInOrder(WatchedWrongly):
    """The launcher waits for rank 0 first, so it does not notice that rank 1 has failed."""

    def wait(self) -> int:
        return next((int(code) for child in self.launched.children if (code := child.wait())), 0)


@launcher("signal-status-taken-for-success", cause="signal-taken-for-success")
class PositiveStatuses(WatchedWrongly):
    """The launcher takes negative exit statuses, those of ranks killed by a signal, for success."""

    def wait(self) -> int:
        status = int(self.launched.wait())
        return max(status, 0)


@launcher("killer-hides-root-cause", seen_in=("Lightning-AI/pytorch-lightning#9388",), cause="own-kill-reported")
class KillsAtOnce(WatchedWrongly):
    """The launcher kills the other ranks at the first failure and reports one of those it killed."""

    def wait(self) -> int:
        children = self.launched.children
        while not any(child.poll() for child in children):
            sleep(0.01)
        for child in children:
            child.kill()
        return min(int(child.wait()) for child in children)

    def poll(self) -> str | None:
        ended = [self.launched.status_of(rank) for rank in range(len(self.launched.children))]
        return min((text for text in ended if text), key=lambda text: "killed" not in text, default=None)


@launcher("launcher-always-ends-well", cause="exit-status-lost")
class EndsWell(WatchedWrongly):
    """The launcher ignores the exit statuses of ranks and always reports success."""

    def wait(self) -> int:
        self.launched.wait()
        return 0


@launcher("launcher-keeps-no-output", cause="last-output-lost")
class KeepsNoOutput(WatchedWrongly):
    """The launcher discards the output of ranks when one fails."""

    def output(self) -> str:
        return ""


@launcher("launcher-shows-other-ranks-only", cause="output-not-passed-on")
class ShowsOthers(WatchedWrongly):
    """The launcher shows the output of all ranks except the one that failed."""

    def output(self) -> str:
        _, _, failed = str(self.launched.poll()).partition("rank ")
        lines = str(self.launched.output()).splitlines()
        return "\n".join(line for line in lines if not line.startswith(f"rank {failed.partition(' ')[0]}:"))
