"""Laws of an audit on metrics, checkpoints and resumed runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from audit_evidence import Event, call, cause, evidence, state, step

from ddpcheck.audit.evidence import Evidence, RunSeen
from ddpcheck.audit.laws import (
    batch_means,
    results,
    resuming,
    steps,
)
from ddpcheck.audit.laws.law import LawVerdict


def test_evaluations_that_read_samples_twice_are_noted() -> None:
    def judged(read: int, *mentions: str) -> str:
        loader = {"kind": "loader", "key": "v", "size": 100, "line": "train.py:4"}
        batch = {"kind": "batch", "key": "v", "passed": 0, "size": read, "grad": False, "step": 3}
        end = {"kind": "epoch_end", "key": "v", "passed": 0, "cut": False}
        events = [{"kind": "begin", "mentions": list(mentions)}, loader, batch, end]
        return results.metrics_are_combined(evidence(events, events)).observation

    assert "128 samples of 100" in judged(64)
    assert judged(50) == judged(64, "gather_for_metrics") == judged(100) == ""


@pytest.mark.parametrize(
    ("by", "values", "told"),
    [
        ([100.0, 100.0], (0.2, 0.3), True),
        ([101.0, 101.0], (0.2, 0.3), True),
        ([8.0, 8.0], (0.2, 0.3), False),
        ([100.0, 100.0], (0.2, 0.2), False),
        ([50.0, 51.0], (0.2, 0.3), False),
        ([4.0, 4.0], (0.2, 0.3), False),
        ([None, None], (0.2, 0.3), False),
        ([60.0, 60.0], (0.2, 0.3), False),
        ([100.0, 51.0], (0.2, 0.3), False),
        ([], (0.2, 0.3), False),
        ([100.0], (0.2, 0.3), False),
    ],
    ids=[
        "size of the set", "samples of all ranks", "number of all batches by chance", "reduced before", "own samples",
        "own batches", "not known", "another number", "one rank only", "not divided", "not known on one rank",
    ],
)  # fmt: skip
def test_a_metric_that_is_divided_by_all_samples_and_averaged(
    by: list[float | None], values: tuple[float, float], told: bool
) -> None:
    judged = judge_mean_over_ranks((50, 51), by, values)
    ids = [each.id for each in judged.causes]
    assert ("metric-divided-by-all-and-averaged" in ids) == told
    assert not told or (judged.causes[0].get("divided"), judged.causes[0].get("line")) == ("train.py:8", "train.py:9")


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ((743.0, 820.0), True),
        ((743.0, 743.0), False),
        ((0.5, 0.25), False),
        ((1.0, 2.0), False),
        ((None, 820.0), False),
    ],
)
def test_means_over_numbers_of_each_rank_are_no_mean(numbers: tuple[float | None, float], told: bool) -> None:
    judged = judge_mean_over_ranks((50, 50), [None, None], numbers=numbers)
    assert [each.id for each in judged.causes] == ["mean-of-own-means"] * told


def test_a_data_set_that_each_rank_reads_but_for_its_end_is_no_shard() -> None:
    assert judge_mean_over_ranks((96, 96), [100.0, 100.0]).status == "held"


def test_batches_of_all_ranks_are_a_product_with_the_world_size() -> None:
    assert cause(judge_mean_over_ranks((50, 51), [8.0, 8.0], world=True)) == "metric-divided-by-all-and-averaged"


def judge_mean_over_ranks(
    samples_of_ranks: tuple[int, int],
    by: list[float | None],
    values: tuple[float, float] = (0.2, 0.3),
    *,
    world: bool = False,
    numbers: tuple[float | None, float | None] = (None, None),
) -> LawVerdict:
    """by: the length that each rank has divided its value by, before the mean over ranks; numbers: what counts anything else.
    The data set has 100 samples.
    """
    loader = {"kind": "loader", "key": "v", "size": 100, "line": "train.py:4"}
    ranks = []
    for rank, samples in enumerate(samples_of_ranks):
        batch = {"kind": "batch", "key": "v", "passed": 0, "size": samples, "grad": False, "step": 3}
        end = {"kind": "epoch_end", "key": "v", "passed": 0, "cut": False, "batches": 4}
        divided = (
            {"by": by[rank], "number": numbers[rank], "world": world, "line": "train.py:8"} if rank < len(by) else None
        )
        before = [divided] if divided else []
        mean = {"averaged": True, "metric": "", "before": before}
        ranks.append([loader, batch, end, call("all_reduce", "train.py:9", values=[values[rank]], **mean)])
    return results.means_weigh_ranks_by_their_samples(evidence(*ranks))


def test_a_checkpoint_that_one_rank_reads_in_the_middle() -> None:
    def judged(number: int) -> list[str]:
        load = {"kind": "load", "path": "best.pt", "step": number, "line": "train.py:7"}
        ranks = [[load, step(3, groups=[{"lr": 0.1}])], [step(3, groups=[{"lr": 0.2}])]]
        return [each.id for each in steps.hyperparameters_are_equal(evidence(*ranks)).causes]

    assert judged(2) == ["state-restored-on-one-rank", "learning-rate-differs"]
    assert judged(0) == judged(4) == ["learning-rate-differs"], "at the start, and after the difference"


@pytest.mark.parametrize(
    ("values", "told"),
    [([0.5], True), ([1.5, 3.0], True), ([1.5], False), ([0.6], False), ([19.0, 38.0], False)],
)
def test_a_mean_of_batch_means_is_a_note(values: list[float], told: bool) -> None:
    end = {"kind": "epoch_end", "batches": 3, "sizes": [16, 6], "means": [{"plain": 0.5, "weighted": 0.6}]}
    call = {"kind": "collective", "op": "all_reduce", "values": values, "line": "train.py:15"}
    judged = batch_means.means_weigh_batches_by_their_samples(evidence([end, call]))
    assert (judged.status, "train.py:15" in judged.observation) == ("held", told)
    equal = evidence([{**end, "means": []}, call])
    assert batch_means.means_weigh_batches_by_their_samples(equal).status == "not judged"


@pytest.mark.parametrize(
    ("samples", "draws", "other"),
    [
        ("x", "r", "parameters, or other random draws that were not recorded"),
        ("y", "r", "samples"),
        ("x", "s", "random draws"),
        ("y", "s", "samples and random draws"),
    ],
)
def test_a_resumed_run_is_told_by_the_inputs_that_differ(samples: str, draws: str, other: str) -> None:
    def run(number: int, gradient: str, samples: str, draws: str) -> list[Event]:
        batch = {"kind": "batch", "step": number, "digest": samples, "grad": True}
        draw = {"kind": "draw", "step": number, "digest": draws}
        return [batch, draw, step(number, grads=[gradient], after=[])]

    def seen(*events: Event) -> RunSeen:
        return RunSeen(((*events, {"kind": "end", "why": "finished", "step": 1}),) * 2, ("",) * 2)

    first = run(0, "a", "x", "r")
    again = seen(*run(0, "c", samples, draws))
    whole = evidence(*[[*first, *run(1, "b", "x", "r")]] * 2)
    found = resuming.resumed_runs_go_on(replace(whole, mirrors={"interrupted": seen(*first), "resumed": again}))
    assert found.causes[0].get("what") == f"gradients differ: other {other} in step 1"


@pytest.mark.parametrize(
    ("again", "first", "others"),
    [
        (("r", "r"), "random-state-of-one-rank", ["state-not-restored"]),
        (("x", "x"), "state-not-restored", []),
        (("r", "x"), "state-not-restored", []),
    ],
)
@pytest.mark.parametrize("rate", [0.1, 0.2])
def test_all_ranks_resume_with_the_random_state_of_one(
    again: tuple[str, str], first: str, others: list[str], rate: float
) -> None:
    def ends(events: list[Event]) -> tuple[Event, ...]:
        return (*events, {"kind": "end", "why": "finished", "step": 1})

    def run(number: int, gradient: str, draws: str, rate: float = 0.1) -> list[Event]:
        draw = {"kind": "later_draw", "step": number, "digest": draws}
        return [draw, step(number, grads=[gradient], after=[], groups=[{"lr": rate}])]

    whole = evidence(*([*run(0, "a", "p"), *run(1, "b", own)] for own in "rs"))
    stopped = RunSeen(tuple(ends(run(0, "a", "p")) for _ in "rs"), ("",) * 2)
    resumed = RunSeen(tuple(ends(run(0, "c", own, rate)) for own in again), ("",) * 2)
    found = resuming.resumed_runs_go_on(replace(whole, mirrors={"interrupted": stopped, "resumed": resumed}))
    expected = [first, *others] if rate == 0.1 else ["state-not-restored"]
    assert [each.id for each in found.causes] == expected


def test_random_draws_of_another_rank_are_told() -> None:
    def run(*draws: str, before: int = 0) -> RunSeen:
        ranks = []
        for own in draws:
            draw = {"kind": "draw", "step": before, "digest": own}
            ranks.append(
                (draw, step(before, grads=[draws[1]], after=[]), {"kind": "end", "why": "finished", "step": 1})
            )
        return RunSeen(tuple(ranks), ("",) * 2)

    whole = replace(
        evidence([], []),
        real=run("r", "s"),
        mirrors={"interrupted": RunSeen((({"kind": "end", "why": "finished"},),) * 2)},
    )
    found = resuming.resumed_runs_go_on(replace(whole, mirrors={**whole.mirrors, "resumed": run("r", "t")}))
    assert found.causes[0].get("what") == "gradients differ: other random draws on rank 1 in step 0"


def test_a_resumed_run_that_goes_on_at_another_batch() -> None:
    def run(*digests: str, first: int = 0, gradient: str = "") -> list[Event]:
        made: list[Event] = []
        for number, each in enumerate(digests, first):
            batch = {"kind": "batch", "step": number, "digest": each, "grad": True}
            made += [batch, step(number, grads=[gradient or each], after=[])]
        return [*made, {"kind": "end", "why": "finished", "step": len(digests)}]

    def resumed(again: str) -> list[Event]:
        """A batch is read to skip it."""
        skipped = {"kind": "batch", "step": 0, "digest": "a", "grad": True}
        return [skipped, *run(again, gradient="other")]

    def judged(again: str, other: str = "") -> list[str]:
        ends = {
            "interrupted": RunSeen((tuple(run("a")),) * 2, ("",) * 2),
            "resumed": RunSeen((tuple(resumed(again)), tuple(resumed(other or again))), ("",) * 2),
        }
        whole = evidence(run("a", "b", "c"), run("a", "b", "c"))
        causes = resuming.resumed_runs_go_on(replace(whole, mirrors=ends)).causes
        assert ("samples" in str(causes[-1].get("what"))) == ((again, other) != ("b", ""))
        return [each.id for each in causes]

    assert judged("c") == ["resumed-at-another-batch", "state-not-restored"]
    assert judged("b") == ["state-not-restored"], "another input differs"
    assert judged("x") == judged("c", "x") == ["state-not-restored"]


def evaluated(*counts: int, **reduction: object) -> Evidence:
    """An evaluation of as many samples on each rank, and a reduction after it."""
    ranks = []
    for count in counts:
        batch = {"kind": "batch", "key": "v", "passed": 0, "size": count, "grad": False, "step": 3}
        call = {"kind": "collective", "op": "all_reduce", "values": [0.5], "line": "train.py:9", **reduction}
        ranks.append([batch, {"kind": "epoch_end", "key": "v", "passed": 0, "cut": False}, call])
    return evidence(*ranks)


def test_metrics_that_are_no_means() -> None:
    judge = results.means_weigh_ranks_by_their_samples
    assert cause(judge(evaluated(8, 8, averaged=True, metric="auroc"))) == "metric-is-no-mean"
    assert judge(evaluated(8, 8, averaged=True, metric="")).status == "held"
    assert cause(judge(evaluated(8, 8, averaged=False, divided_by=[8]))) == "metric-divided-by-own-count"
    assert judge(evaluated(8, 8, averaged=False, divided_by=[16])).status == "held"


def test_checkpoints() -> None:
    def save(path: str, prefix: bool = False) -> Event:
        return {"kind": "save", "path": path, "prefix": prefix, "step": 3, "line": "train.py:20"}

    judge = results.one_rank_writes_each_checkpoint
    assert judge(evidence([save("/x/a.pt")], [save("/x/b.pt")])).status == "held"
    assert cause(judge(evidence([save("/x/a.pt")], [save("/x/a.pt")]))) == "checkpoint-written-by-several-ranks"
    loaded: Event = {"kind": "loaded", "missing": 4, "names": 4, "prefix": True, "step": 3, "line": "train.py:25"}
    fits = results.checkpoints_fit_the_bare_model
    assert fits(evidence([save("/x/a.pt", True)], [])).status == "held"
    assert cause(fits(evidence([save("/x/a.pt", True), loaded], []))) == "checkpoint-has-wrapper-prefix"


@pytest.mark.parametrize(("again", "told"), [("e", False), ("f", True)])
def test_a_resumed_run_goes_on_with_models_that_no_optimizer_trains(again: str, told: bool) -> None:
    def run(number: int, average: str) -> list[Event]:
        return [step(number, after=["p"]), state(number + 1, **{"m1.weight": average})]

    def seen(events: list[Event]) -> RunSeen:
        return RunSeen(((*events, {"kind": "end", "why": "finished", "step": 1}),) * 2, ("",) * 2)

    whole = evidence(*[[*run(0, "d"), *run(1, "e")]] * 2)
    mirrors = {"interrupted": seen(run(0, "d")), "resumed": seen(run(0, again))}
    found = resuming.resumed_runs_go_on(replace(whole, mirrors=mirrors))
    assert [each.id for each in found.causes] == ["state-not-restored"] * told
    assert found.status == ("broken" if told else "held")
