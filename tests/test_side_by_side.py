"""Several Sessions at the same time: all verdicts arrive, all Sessions end, and an adapter that shares no host runs
alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import minimal_adapter
import pytest

from ddpcheck.contract.adapter import Adapter
from ddpcheck.running.check_runner import Settings, run_items
from ddpcheck.running.expected_failures import NOTHING_EXPECTED
from ddpcheck.running.parallel_iterators import advance_in_threads
from ddpcheck.running.plan import Item, installed_checks, plan
from ddpcheck.running.profiles import profile_named

TWO_AT_ONCE = Settings(profile_named("quick"), sessions=2)
SUMS = tuple(check for check in installed_checks() if check.name == "check_all_reduce_sums_exactly")


def sharing(adapter: Adapter) -> Adapter:
    return replace(adapter, capabilities=adapter.capabilities.but(shares_host=True))


minimal, sleepy = sharing(minimal_adapter.adapter), sharing(minimal_adapter.sleepy)
unsharing = minimal_adapter.adapter


def never() -> None:
    raise AssertionError("no Session should be interrupted")


def test_one_at_a_time_keeps_the_order() -> None:
    assert list(advance_in_threads([[1, 2], [3], [4]], 1, never)) == [1, 2, 3, 4]


@pytest.mark.parametrize("at_once", [2, 3, 9])
def test_all_results_are_delivered(at_once: int) -> None:
    found = list(advance_in_threads([range(10 * i, 10 * i + 10) for i in range(5)], at_once, lambda: None))
    assert sorted(found) == list(range(50))
    assert [[value for value in found if value // 10 == i] for i in range(5)] == [
        list(range(10 * i, 10 * i + 10)) for i in range(5)
    ]


def test_they_are_at_work_at_once() -> None:
    both = threading.Barrier(2, timeout=20)

    def work() -> Iterator[int]:
        yield both.wait()

    assert sorted(advance_in_threads([work(), work()], 2, lambda: None)) == [0, 1]


def test_an_error_ends_the_others_and_comes_through() -> None:
    told = threading.Event()

    def wrong() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    def long() -> Iterator[int]:
        told.wait(20)
        yield 2
        raise AssertionError("it should end with its current Job")

    with pytest.raises(ZeroDivisionError):
        list(advance_in_threads([wrong(), long()], 2, told.set))
    assert told.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("side-by-side")]


def test_verdicts_are_those_of_one_after_the_other() -> None:
    items = plan(f"{__file__}:minimal", (1, 2, 3), SUMS)
    found = {(v.world_size, v.check, v.status, v.jobs) for v in run_items(items, TWO_AT_ONCE, NOTHING_EXPECTED)}
    alone = {
        (v.world_size, v.check, v.status, v.jobs)
        for v in run_items(items, replace(TWO_AT_ONCE, sessions=1), NOTHING_EXPECTED)
    }
    assert found == alone
    assert len(found) == len(items)


@pytest.mark.parametrize(("adapter", "most"), [("minimal", 2), ("unsharing", 1)])
def test_only_adapters_that_share_a_host_run_concurrently(adapter: str, most: int) -> None:
    reference = f"{__file__}:{adapter}"
    items = plan(reference, (1, 2), SUMS)
    at_work: list[int] = []
    together: list[int] = []
    begun = threading.Barrier(most, timeout=20)

    def begin(item: Item) -> None:
        at_work.append(item.world_size)
        together.append(len(set(at_work)))
        begun.wait()

    for verdict in run_items(items, TWO_AT_ONCE, NOTHING_EXPECTED, begin):
        at_work.remove(verdict.world_size)
    assert max(together) == most


def test_hanging_work_ends_when_results_are_not_needed() -> None:
    items = plan(f"{__file__}:sleepy", (1, 2), SUMS)
    asleep = threading.Semaphore(0)

    def begin(item: Item) -> None:
        if item.check in SUMS:
            asleep.release()

    with closing(run_items(items, replace(TWO_AT_ONCE, deadline=600.0), NOTHING_EXPECTED, begin)) as verdicts:
        assert [next(verdicts).check for _ in range(2)] == ["check_ranks_start"] * 2
        assert asleep.acquire(timeout=60)
        assert asleep.acquire(timeout=60)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("side-by-side")]
