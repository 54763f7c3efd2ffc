"""Laws of an audit on the samples of ranks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from audit_evidence import Event, backward, cause, compared, evidence, step

from ddpcheck.audit.evidence import Evidence
from ddpcheck.audit.laws import (
    accumulation,
    data,
    samples,
    shards,
)
from ddpcheck.audit.laws.law import LawVerdict


def test_ranks_that_draw_from_all_samples() -> None:
    def judged(*batches: str) -> LawVerdict:
        """Every rank reads batches of rows; rank 1 reads those of the second half."""
        loader = {"kind": "loader", "key": "l", "line": "train.py:4", "iterable": True, "workers": 0}
        ranks = []
        for rank in range(2):
            events: list[Event] = [loader]
            for number, rows in enumerate(batches[rank * len(batches) // 2 :][: len(batches) // 2]):
                batch = {
                    "kind": "batch", "key": "l", "passed": 0, "number": number, "grad": True, "rows": list(rows),
                    "size": len(rows), "digest": "".join(rows), "line": "train.py:5", "indices": None,
                }  # fmt: skip
                events += [batch, backward()]
            ranks.append(events)
        return shards.ranks_read_different_shards(evidence(*ranks))

    alike = judged("abc", "bca", "dab", "abc", "bca", "cdb")
    assert cause(alike) == "ranks-draw-alike"
    assert "2 of 3" in alike.causes[0].headline
    assert judged("abc", "bca", "dab", "abc", "cab", "bda").status == "held"
    assert cause(judged("abc", "def", "cfa", "bde")) == "same-data-on-every-rank"
    assert judged("abc", "def", "ghi", "jkl").status == "held"


def reads(rows: list[str], indices: list[int] | None = None, *, iterable: bool = True) -> list[Event]:
    """One batch that is trained on, with a digest for each sample."""
    loader = {"kind": "loader", "key": "a", "iterable": iterable, "workers": 0, "line": "train.py:3", "size": 64}
    kind = {"sampler": "Weighted", "batch_sampler": "BatchSampler", "subset": None, "base_size": 64, "batch_size": 8}
    batch = {
        "kind": "batch",
        "key": "a",
        "passed": 0,
        "number": 0,
        "rows": rows,
        "indices": indices,
        "size": len(rows),
        "grad": True,
    }
    end = {"kind": "epoch_end", "key": "a", "passed": 0, "cut": False}
    return [{**loader, **kind}, {**batch, "step": 0, "digest": str(rows), "line": "train.py:5"}, backward(), end]


def in_turn(*, ranks_differ: bool, sharded: bool, ahead: bool = False) -> Evidence:
    """Two ranks train on every second of eight batches of 8 samples, of 64 that all get, or of 128 in shards."""
    found = []
    for rank in range(2):
        sampler = (
            {"num_replicas": 2, "rank": rank, "shuffle": False, "seed": 0, "line": "train.py:2"} if sharded else None
        )
        loader, *_ = reads([])
        events: list[Event] = [
            {**loader, "iterable": False, "sampler": "SequentialSampler", "base_size": 128 if sharded else 64},
            {"kind": "epoch", "key": "a", "passed": 0, "distributed": sampler},
        ]
        for number in range(8):
            indices = [8 * number + n for n in range(8)]
            if sharded:
                indices = [2 * each + rank for each in indices]
            rows = [f"row {each}" for each in indices]
            batch = next(each for each in reads(rows, indices) if each["kind"] == "batch")
            events.append({**batch, "number": number})
            if number % 2 == (rank if ranks_differ else 1):
                events += [backward()] * (1 + ahead)
        found.append([*events, {"kind": "epoch_end", "key": "a", "passed": 0, "cut": False}])
    return evidence(*found)


def test_batches_of_one_loader_that_ranks_take_in_turn() -> None:
    dealt = in_turn(ranks_differ=True, sharded=False)
    assert shards.ranks_read_different_shards(dealt).status == "held", "each rank trains on other batches"
    assert data.every_sample_is_used(dealt).status == "held"
    assert cause(data.every_sample_is_used(in_turn(ranks_differ=True, sharded=True))) == "batches-split-again"
    skipping = data.every_sample_is_used(in_turn(ranks_differ=False, sharded=True))
    assert (skipping.status, skipping.observation) == (
        "held", "no backward pass follows 4 of 8 batches of pass 0: the loop skips them"
    )  # fmt: skip
    ahead = in_turn(ranks_differ=True, sharded=True, ahead=True)
    assert data.every_sample_is_used(ahead).observation == "", "batches may be read before they are used"


def test_samples_of_an_iterable_data_set_that_come_to_several_ranks() -> None:
    def judged(first: int, *again: int) -> LawVerdict:
        own = [[f"row {row}" for row in range(begin, begin + 64)] for begin in (0, first)]
        return shards.ranks_read_different_shards(evidence(*(reads(rows + [rows[n] for n in again]) for rows in own)))

    assert cause(judged(40)) == "shards-overlap"
    assert judged(60).status == "held", "a few samples may be equal"
    assert judged(40, 1).status == "held", "a rank gets a sample twice: they are drawn with replacement"


def test_ranks_that_share_the_groups_of_samples() -> None:
    """Each prompt comes several times, as for a policy that answers it several times. Half of its answers is on each rank."""

    def judged(indices: list[int]) -> LawVerdict:
        ranks = [reads([f"row {n}" for n in indices], indices, iterable=False) for _ in range(2)]
        return shards.ranks_read_different_shards(evidence(*ranks))

    shared = judged([n // 4 for n in range(32)])
    assert (shared.status, "4 times" in shared.observation) == ("held", True)
    assert cause(judged(list(range(32)))) == "same-data-on-every-rank"


def test_samplers_with_different_seeds() -> None:
    """Ranks that read samples 0 to 31 and 20 to 51, by a DistributedSampler of the same or of different seeds."""

    def judged(*seeds: int, shuffle: bool = True, **more: str) -> LawVerdict:
        ranks = []
        for seed, first in zip(seeds, (0, 20), strict=True):
            sampler = {"num_replicas": 2, "rank": first // 20, "epoch": 0, "shuffle": shuffle, "seed": seed, **more}
            begin: Event = {"kind": "epoch", "key": "a", "passed": 0, "distributed": sampler}
            indices = list(range(first, first + 32))
            ranks.append([begin, *reads([f"row {n}" for n in indices], indices, iterable=False)])
        return shards.ranks_read_different_shards(evidence(*ranks))

    found = judged(5, 6, line="train.py:2")
    assert cause(found) == "sampler-seed-differs"
    assert "5, 6" in found.causes[0].headline
    assert found.causes[0].get("line") == "train.py:2", "where the sampler is made"
    assert judged(5, 6, line="").causes[0].get("line") == judged(5, 6).causes[0].get("line") == "train.py:3", (
        "the loader"
    )
    assert cause(judged(5, 5, line="train.py:2")) == "shards-overlap"
    assert cause(judged(5, 6, shuffle=False)) == "shards-overlap", "seeds have no effect"


def test_data_sets_in_another_order_on_each_rank() -> None:
    """Ranks whose indices are disjoint read 24 equal samples, behind data sets of the same or of different contents."""

    def judged(*contents: str, shuffle: bool = True, again: int = 24, alike: bool = False) -> str:
        ranks = []
        for rank, content in enumerate(contents):
            sampler = {"num_replicas": 2, "rank": rank, "epoch": 0, "shuffle": shuffle, "seed": 0, "line": ""}
            begin: Event = {"kind": "epoch", "key": "a", "passed": 0, "distributed": sampler}
            rows = [f"row {n}" for n in range(rank * (32 - again), rank * (32 - again) + 32)]
            if alike:
                rows = [f"row {n}" if n < again else f"row {n} of rank {rank}" for n in range(32)]
            loader, *rest = reads(rows, list(range(rank, 64, 2)), iterable=False)
            ranks.append([begin, {**loader, "content": content}, *rest])
        verdict = shards.ranks_read_different_shards(evidence(*ranks))
        return cause(verdict) if verdict.status == "broken" else verdict.status

    assert judged("ab", "ba") == "shards-overlap"
    assert judged("", "") == "shards-overlap", (
        "contents are not known, but shuffling would give a rank equal samples, too"
    )
    assert judged("", "", shuffle=False) == "held", "a data set that has samples twice"
    assert judged("ab", "ab") == "held", "a data set that has samples twice"
    assert judged("ab", "ba", again=3) == "held", "by chance"
    assert judged("", "", alike=True) == "held", "samples at the same places are alike by random draws"


def test_ranks_whose_own_gradients_are_equal() -> None:
    """No batch is known, as where a script draws batches itself."""

    def judged(*alike: bool) -> LawVerdict:
        seen = tuple(compared(step=number, alike=each) for number, each in enumerate(alike))
        ranks = [[backward(n) for n in range(2)] for _ in range(2)]
        return shards.ranks_read_different_shards(evidence(*ranks, compared=seen))

    found = judged(False, True)
    assert cause(found) == "same-data-on-every-rank"
    assert found.headline.endswith("in step 1")
    assert judged(False, False).status == "not judged"


def test_parts_that_samplers_split_again() -> None:
    """Ranks have samples 0 to 15 and 16 to 31, or all have both; a sampler gives each rank every second one, or all."""

    def judged(*parts: range, replicas: int = 2) -> str:
        ranks = []
        for rank, part in enumerate(parts):
            loader, *rest = reads([f"row {n}" for n in part], list(range(rank, 16, 2)), iterable=False)
            sampler = {"num_replicas": replicas, "rank": rank % replicas, "epoch": 0, "shuffle": False, "seed": 0}
            begin: Event = {"kind": "epoch", "key": "a", "passed": 0, "distributed": sampler}
            ranks.append([{**loader, "base": "Tensors", "subset": list(part), "base_size": 32}, begin, *rest])
        verdict = data.every_sample_is_used(evidence(*ranks))
        return cause(verdict) if verdict.status == "broken" else verdict.status

    assert judged(range(16), range(16, 32)) == "part-split-again"
    assert judged(range(16), range(16, 32), replicas=1) == "held"
    assert judged(range(20), range(12, 32)) == "held", "another law judges parts that overlap"


def test_samples_that_the_data_set_and_its_loader_split() -> None:
    def judged(*attributes: str) -> LawVerdict:
        loaders: list[list[Event]] = [
            [{"kind": "loader", "key": "l", "dataset": "Stream", "splits": each, "line": "train.py:4"}]
            for each in attributes
        ]
        return data.every_sample_is_used(evidence(*loaders))

    assert cause(judged("rank", "rank")) == "samples-split-twice"
    assert judged("", "").status == "not judged"


def test_a_split_by_the_hash_of_strings_is_told() -> None:
    def judged(*seeds: str) -> str:
        own = [[f"row {row}" for row in range(begin, begin + 64)] for begin in (0, 40)]
        hashed: list[list[Event]] = [[{"kind": "string_hash", "line": "train.py:2", "seed": seed}] for seed in seeds]
        ranks = [[*events, *reads(rows)] for events, rows in zip(hashed or [[], []], own, strict=True)]
        return shards.ranks_read_different_shards(evidence(*ranks)).causes[0].because

    assert "hash() at train.py:2" in judged("20", "235")
    assert "hash() at train.py:2" in judged("random", "random")
    assert "hash()" not in judged("0", "0") + judged()


def test_samples_that_are_drawn_with_replacement() -> None:
    def judged(*own: list[int]) -> list[str]:
        ranks = [reads([f"row {n}" for n in indices], indices, iterable=False) for indices in own]
        laws = (shards.ranks_read_different_shards, data.every_sample_is_used)
        return [law(evidence(*ranks)).status for law in laws]

    assert judged(list(range(32)), list(range(20, 52)))[0] == "broken"
    twice = [[n // 2 for n in range(begin, begin + 32)] for begin in (0, 20)]
    assert judged(*twice) == ["held", "held"]


def test_samples_that_a_sampler_leaves_out() -> None:
    def judged(*epochs: list[int]) -> LawVerdict:
        """The samples of each epoch, of 64; the ranks get every second one."""
        ranks = []
        for rank in range(2):
            events: list[Event] = []
            for number, chosen in enumerate(epochs):
                own = chosen[rank::2]
                read = reads([f"row {n}" for n in own], own, iterable=False)
                events += [{**event, "passed": number} for event in read]
            ranks.append(events)
        return data.every_sample_is_used(evidence(*ranks))

    first, other = list(range(0, 40)), list(range(24, 64))
    assert cause(judged(first)) == cause(judged(first, first)) == "samples-never-used"
    scattered = [n for n in range(64) if n % 8 < 5]
    for balanced in (judged(scattered), judged(first, other)):
        assert (balanced.status, "chooses 40 of 64" in balanced.observation) == ("held", True), "it may balance classes"
    assert cause(judged(scattered, scattered)) == "samples-never-used", "the same ones each time"
    assert cause(judged(first[:32], other[8:])) == "samples-never-used", (
        "half of all: divided by the number of ranks twice"
    )
    assert judged(list(range(64))).observation == ""


def test_a_loader_that_reads_ahead_ends_before_its_last_window_is_stepped() -> None:
    window = [backward(0, root="DivBackward0"), backward(0, root="DivBackward0"), step(0)]
    end: Event = {
        "kind": "epoch_end", "key": "a", "loader": 0, "passed": 0, "batches": 4, "cut": False, "step": 1, "pending": 1,
        "trained": True, "line": "train.py:5",
    }  # fmt: skip
    last = [backward(1, root="DivBackward0"), step(1)]
    assert accumulation.windows_are_stepped(evidence([*window, end, *last])).status == "held"
    assert accumulation.windows_are_stepped(evidence([*window, end])).status == "broken"


@pytest.mark.parametrize(
    ("left", "told"), [(0, ""), (1, "the last of the 5 batches"), (2, "the last 2 of the 6 batches")]
)
def test_batches_of_a_window_that_is_not_full_are_told(left: int, told: str) -> None:
    """Windows of two batches, which are read before their backward passes."""

    def read(number: int) -> Event:
        return {"kind": "batch", "key": "a", "passed": 0, "step": number // 2, "grad": True, "size": 4}

    events: list[Event] = []
    for number in range(2):
        losses = [backward(place, step=number, root="DivBackward0") for place in range(2)]
        events += [read(2 * number), read(2 * number + 1), *losses, step(number, backwards=2)]
    events += [read(4 + place) for place in range(left)]
    end = {
        "kind": "epoch_end", "key": "a", "passed": 0, "batches": 4 + left, "cut": False, "step": 2, "pending": 0,
        "trained": True, "line": "train.py:5",
    }  # fmt: skip
    verdict = accumulation.windows_are_stepped(evidence([*events, end]))
    assert (verdict.status, told in verdict.observation, bool(verdict.observation)) == ("held", True, bool(left))


def test_samples_that_are_not_the_same_on_all_ranks() -> None:
    def judged(digest: Callable[[int, int, int], str], *, distributed: bool = True, epochs: int = 2) -> LawVerdict:
        """digest: of a sample, by rank, epoch and index. Of 64 samples, each rank gets another half in each epoch."""
        sampler = {"num_replicas": 2} if distributed else None
        ranks: list[list[Event]] = []
        for rank in range(2):
            events: list[Event] = []
            for epoch in range(epochs):
                indices = [n for n in range(64) if (n * (epoch + 1) // 8 + rank) % 2]
                begin = {"kind": "epoch", "key": "a", "passed": epoch, "distributed": sampler}
                events += [begin, *reads([digest(rank, epoch, n) for n in indices], indices, iterable=False)]
            ranks.append(events)
        return samples.samples_are_the_same_on_all_ranks(evidence(*ranks))

    assert judged(lambda rank, epoch, n: f"{n}").status == "held"
    assert cause(judged(lambda rank, epoch, n: f"{n} {rank}")) == "sample-differs-between-ranks"
    assert cause(judged(lambda rank, epoch, n: f"{n} {rank * (n % 2)}")) == "sample-differs-between-ranks"
    random = judged(lambda rank, epoch, n: f"{n} {rank} {epoch}")
    assert random.status == "not judged", "a rank gets other values in each epoch: samples are augmented"
    assert random.note.startswith("a sample differs each time that a rank gets it, as by random augmentation")
    assert judged(lambda rank, epoch, n: f"{n} {rank * (n == 9)}").status == "held", (
        "one sample may be changed by chance"
    )
    assert judged(lambda rank, epoch, n: f"{n} {rank}", epochs=1).note == "no rank got a sample twice"
    own = judged(lambda rank, epoch, n: f"{n} {rank}", distributed=False)
    assert own.note == "no training loader has a DistributedSampler", "an index is of a rank's own"
