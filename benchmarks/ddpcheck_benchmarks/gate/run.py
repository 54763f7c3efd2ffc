"""A complete gate: checks out both trees, prepares and measures them, and removes them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpcheck.cli.exit_status import status_of
from ddpcheck.contract import Capabilities, Traffic
from ddpcheck.ranks.rank_interpreter import Interpreter
from ddpcheck.running.adapter_lookup import missing_modules, resolve

from .compared_revision import Side, Unusable, build, lend, moved, path_for, source_roots
from .decision import Design
from .gate_benchmarks import Benchmark, benchmark_named, offered_by, usual
from .record import Record
from .stages import Progress, measure, places_of
from .trees import Checkouts, Repository


@dataclass(frozen=True)
class Wanted:
    """The settings of both sides."""

    base: str
    head: str | None
    paths: tuple[str, ...]
    setup: str | None
    base_python: str
    head_python: str


def gate(
    name: str,
    wanted: Wanted,
    benchmarks: str | None,
    world_size: int,
    seed: int,
    progress: Progress,
    timed: bool = True,
    design: Design | None = None,
) -> Record:
    """Check out both sides and measure them. Unusable, GitFailed or ValueError if that is not possible.

    If interrupted after its first launch, it returns the measurements so far, with `ended`.
    """
    repository = Repository(Path.cwd())
    roots = source_roots(repository.root, wanted.paths)
    # the driver reads promises and launcher of the adapter in head's tree
    sys.path[:0] = [str(repository.root / root) for root in roots if str(repository.root / root) not in sys.path]
    adapter, reference = resolve(name)
    if reason := adapter.launcher.unavailable():
        raise Unusable(reason)
    if not wanted.setup and (missing := missing_modules(adapter)):
        raise Unusable(f"{adapter.name} needs {', '.join(missing)}; pip install {' '.join(missing)}")
    chosen = _chosen(benchmarks, adapter.capabilities)
    made = Record(
        adapter.name,
        world_size,
        seed,
        design or Design(),
        chosen,
        (),
        (adapter.capabilities.world.traffic >= Traffic.LEAST),
    )
    made.least = {one.name: one.least_bytes(world_size, adapter.capabilities) for one in chosen}
    made.counts_only = not timed
    made.command = shlex.join(["ddpcheck", *sys.argv[1:]])
    jobs = [one.job(world_size, 1, adapter.capabilities) for one in chosen]
    with Checkouts(repository) as checkouts:
        maker = _Maker(repository, checkouts, wanted, roots, reference, progress.told)
        sides = maker.base(), maker.head("head")
        made.places = places_of(sides, [dict(side.look(jobs)) | maker.about(side) for side in sides])
        try:
            measure(made, adapter, sides, lambda: maker.head("twin"), progress, timed=timed)
        except KeyboardInterrupt as interrupt:
            if not made.raw["measurement"]:
                raise
            made.ended = status_of(interrupt)
    return made


class _Maker:
    """Makes sides of checkouts."""

    def __init__(
        self,
        repository: Repository,
        checkouts: Checkouts,
        wanted: Wanted,
        roots: tuple[Path, ...],
        reference: str,
        told: Callable[[str], None],
    ) -> None:
        self._repository, self._checkouts, self._wanted = repository, checkouts, wanted
        self._roots, self._reference, self._told = roots, reference, told
        self._lent = lend(checkouts.folder)
        self._head = repository.snapshot() if wanted.head is None else repository.commit(wanted.head)
        self._base = repository.branched_at(wanted.base, self._head)

    def base(self) -> Side:
        revision = self._repository.named(self._wanted.base, self._base)
        return self._side("base", revision, self._base, self._wanted.base_python)

    def head(self, name: str) -> Side:
        """Head, or its twin."""
        revision = self._repository.named(self._wanted.head or "working tree", self._head)
        return self._side(name, revision, self._head, self._wanted.head_python)

    def about(self, side: Side) -> dict[str, Any]:
        """The part of a Record that the driver fills in."""
        commit = self._base if side.name == "base" else self._head
        return {"commit": commit, "dirty": side.name != "base" and self._wanted.head is None}

    def _side(self, name: str, revision: str, commit: str, python: str) -> Side:
        self._told(f"checking out {name}, {revision}")
        root, tree = self._repository.root, self._checkouts.add(name, commit)
        environment, roots = None, self._roots
        if self._wanted.setup is not None:
            self._told(f"making {name} ready: {self._wanted.setup}")
            environment = self._checkouts.folder / f"{name}-environment"
            python = build(tree, python, self._wanted.setup, environment)
            roots = tuple(map(Path, self._wanted.paths))  # the built trees are imported
        shared = environment is None and python == sys.executable
        path = path_for(tree, root, roots, self._lent, shared=shared)
        here = Path.cwd()
        folder = tree / here.relative_to(root) if here.is_relative_to(root) else tree
        home = Interpreter(moved(self._reference, root, tree), path, folder if folder.is_dir() else tree, python)
        return Side(name, revision, home, tree, environment)


def _chosen(names: str | None, promised: Capabilities) -> tuple[Benchmark, ...]:
    if names is None:
        chosen = usual(promised)
        if not chosen:
            raise ValueError("there is neither a step nor an all_reduce to measure; name a benchmark with --benchmarks")
        return chosen
    chosen = tuple(dict.fromkeys(benchmark_named(name) for name in names.split(",")))
    problems = [f"{one.name}: {reason}" for one in chosen if (reason := offered_by(promised, one))]
    if problems:
        raise ValueError("cannot measure " + "; ".join(problems))
    return chosen
