"""Runs message schedules on a described cluster in SimGrid: JSON on the standard input, JSON on the standard output.

Runs under an interpreter that has SimGrid's Python bindings, which may be another one than ours: Debian's
python3-simgrid belongs to the system's. So this program uses the standard library and simgrid only. runner.py writes
its input and reads its output.

Input: hosts; bandwidth in bytes per second and latency in seconds, of a path between two hosts of one switch;
hosts_per_leaf (0: one switch for all) and uplinks, the number of links from each leaf switch to the spine, as fast as
those of hosts; slow_links, the share of its bandwidth that a host's link has, and late, the seconds by which a rank
begins later, each by number; gamma, seconds to reduce a byte; runs, each a list with the rounds of every rank, a round
being [[dest, bytes], ...], [source, ...], reduced bytes. Output: seconds of each run, from the first begin to the last
end.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

# imported by name: a type checker of another interpreter does not find it
simgrid: Any = importlib.import_module("simgrid")

Round = tuple[list[tuple[int, float]], list[int], float]


class Cluster:
    """A switch, or leaf switches and a spine: links in both directions are separate, and routes are made on request."""

    def __init__(self, description: dict[str, Any]) -> None:
        self._description = description
        self._zone = simgrid.NetZone.create_full_zone("cluster")
        self.hosts = [self._zone.create_host(f"host{i}", 1e9) for i in range(description["hosts"])]
        self._links: dict[str, Any] = {}
        self._routes: set[tuple[int, int]] = set()

    def connect(self, source: int, dest: int) -> None:
        if (source, dest) in self._routes:
            return
        self._routes.add((source, dest))
        path = [self._host_link("up", source), *self._between_leaves(source, dest), self._host_link("down", dest)]
        hops = [simgrid.LinkInRoute(link) for link in path]
        self._zone.add_route(self.hosts[source].netpoint, self.hosts[dest].netpoint, None, None, hops, False)

    def seal(self) -> None:
        self._zone.seal()

    def _between_leaves(self, source: int, dest: int) -> list[Any]:
        """Up to a spine switch and down again. As in InfiniBand, the destination alone decides the switch (D mod k)."""
        size, uplinks = self._description["hosts_per_leaf"], self._description["uplinks"]
        if not size or source // size == dest // size:
            return []
        spine = dest % uplinks
        return [self._link(f"leaf{source // size}-up{spine}", 1.0), self._link(f"leaf{dest // size}-down{spine}", 1.0)]

    def _host_link(self, direction: str, host: int) -> Any:
        return self._link(f"host{host}-{direction}", self._description["slow_links"].get(str(host), 1.0))

    def _link(self, name: str, share: float) -> Any:
        if name not in self._links:
            link = self._zone.create_link(name, self._description["bandwidth"] * share)
            self._links[name] = link.set_latency(self._description["latency"] / 2).seal()
        return self._links[name]


def main() -> None:
    description = json.load(sys.stdin)
    # CM02 without corrections: the given bandwidth and latency, shared max-min; no TCP window, no acknowledgements that
    # take bandwidth
    settings = ["network/model:CM02", "network/TCP-gamma:1e18", "network/crosstraffic:0"]
    engine = simgrid.Engine(["ddpcheck", "--log=root.thresh:error", *(f"--cfg={each}" for each in settings)])
    cluster = Cluster(description)
    runs: list[list[list[Round]]] = description["runs"]
    for run in runs:
        for rank, rounds in enumerate(run):
            for sends, _, _ in rounds:
                for dest, _ in sends:
                    cluster.connect(rank, dest)
    cluster.seal()
    begins = [[0.0] * description["hosts"] for _ in runs]
    ends = [[0.0] * description["hosts"] for _ in runs]
    barrier = simgrid.Barrier(description["hosts"])

    def work(rank: int) -> None:
        for number, run in enumerate(runs):
            barrier.wait()  # takes no simulated time
            begins[number][rank] = simgrid.Engine.clock
            simgrid.this_actor.sleep_for(description["late"].get(str(rank), 0.0))
            for sends, sources, reduced in run[rank]:
                exchange(rank, sends, sources)
                simgrid.this_actor.sleep_for(reduced * description["gamma"])
            ends[number][rank] = simgrid.Engine.clock

    for rank, host in enumerate(cluster.hosts):
        simgrid.Actor.create(f"rank{rank}", host, work, rank)
    engine.run()
    json.dump({"seconds": [max(end) - min(begin) for begin, end in zip(begins, ends)]}, sys.stdout)  # noqa: B905


def exchange(rank: int, sends: list[tuple[int, float]], sources: list[int]) -> None:
    """Send and receive at the same time, and wait for all messages."""
    under_way = [simgrid.Mailbox.by_name(f"{rank}-{dest}").put_async("chunk", int(size)) for dest, size in sends]
    for source in sources:
        simgrid.Mailbox.by_name(f"{source}-{rank}").get()
    for sent in under_way:
        sent.wait()


if __name__ == "__main__":
    main()
