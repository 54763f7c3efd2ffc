"""Laws of an audit on windows, hyperparameters, schedules and random draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from audit_evidence import Event, backward, call, cause, evidence, step

from ddpcheck.audit.evidence import Evidence, RunSeen
from ddpcheck.audit.laws import (
    accumulation,
    randomness,
    schedules,
    steps,
)
from ddpcheck.audit.laws.law import LawVerdict


def test_hyperparameters() -> None:
    assert steps.hyperparameters_are_equal(evidence([step()], [step()])).status == "held"
    other = step(groups=[{"lr": 0.2}])
    assert cause(steps.hyperparameters_are_equal(evidence([step()], [other]))) == "learning-rate-differs"
    a, b = (step(groups=[{"lr": 0.1, "weight_decay": w}]) for w in (0.0, 0.1))
    found = steps.hyperparameters_are_equal(evidence([a], [b]))
    assert cause(found) == "hyperparameters-differ"
    assert found.causes[0].get("name") == "weight_decay"


def test_hyperparameters_that_some_ranks_load() -> None:
    def judged(*loaded_in: int, differ: int) -> str:
        loads = [{"kind": "optimizer_loaded", "optimizer": 0, "step": n, "line": "train.py:6"} for n in loaded_in]
        ranks = ((loads, 0.1), ([], 0.2))
        rates = [[rate if n >= differ else 0.4 for n in range(4)] for _, rate in ranks]
        return cause(
            steps.hyperparameters_are_equal(
                evidence(
                    *(
                        [*own, *(step(n, groups=[{"lr": lr}]) for n, lr in enumerate(each))]
                        for (own, _), each in zip(ranks, rates, strict=True)
                    )
                )
            )
        )

    assert judged(0, differ=0) == judged(2, differ=2) == "optimizer-state-loaded-on-one-rank"
    assert judged(differ=0) == judged(0, differ=2) == judged(3, differ=2) == "learning-rate-differs"


def test_why_learning_rates_differ() -> None:
    def judged(*calls: Event, places: tuple[int, int] = (2, 2)) -> str:
        schedule = {"kind": "schedule", "schedule": 0, "line": "train.py:5"}
        ranks = zip((0.1, 0.2), places, strict=True)
        return cause(
            steps.hyperparameters_are_equal(
                evidence(*([schedule, *calls, step(groups=[{"lr": rate}], schedules=[place])] for rate, place in ranks))
            )
        )

    assert judged() == "learning-rate-differs"
    assert judged(places=(2, 3)) == "schedule-steps-differ"
    metric = {"kind": "metric", "step": 0, "value": 0.7, "line": "train.py:8"}

    def reduced(result: float | None, op: str = "reduce") -> list[Event]:
        left = {"kind": "left", "op": op, "values": None if result is None else [result]}
        return [call(op, "train.py:7"), left, metric]

    assert judged(*reduced(1.4)) == judged(*reduced(0.7)) == "metric-reduced-to-one-rank"
    assert judged(*reduced(0.9)) == judged(*reduced(None)) == "learning-rate-differs", "another value is reduced"
    assert judged(*reduced(1.4, "all_reduce")) == "learning-rate-differs"


def test_learning_rates_that_differ_by_the_metrics_of_a_plateau_schedule() -> None:
    """Rank 0 has halved its rate in step 4, by metrics that the script gives at train.py:8."""

    def judged(own: list[float], other: list[float], *, given_in: int = 3, optimizer: int = 0) -> LawVerdict:
        def metric(value: float) -> Event:
            return {"kind": "metric", "optimizer": optimizer, "step": given_in, "value": value, "line": "train.py:8"}

        ranks = ((own, 0.1), (other, 0.2))
        return steps.hyperparameters_are_equal(
            evidence(*([*map(metric, values), step(4, groups=[{"lr": rate}])] for values, rate in ranks))
        )

    found = judged([0.7, 0.66, 0.5], [0.7, 0.61, 0.5])
    assert cause(found) == "schedule-metric-differs"
    assert (found.causes[0].get("line"), found.causes[0].get("values")) == ("train.py:8", "0.66, 0.61")
    assert "from step 4 on: 0.1, 0.2" in found.causes[0].because
    assert judged([0.7000000001], [0.7]).causes[0].get("values") == "0.7000000001, 0.7", (
        "a small difference decides, too"
    )
    counted = judged([0.7, 0.6], [0.7])
    assert cause(counted) == "schedule-steps-differ", "rank 1 gives the schedule no second metric"
    assert (counted.causes[0].get("line"), counted.causes[0].get("counts")) == ("train.py:8", (2, 1))
    assert cause(judged([], [0.7])) == "schedule-steps-differ"
    for other_reason in (
        judged([0.7], [0.7]),
        judged([0.7], [0.6], given_in=5),
        judged([0.7], [0.6], optimizer=1),
    ):
        assert cause(other_reason) == "learning-rate-differs", "the metrics do not explain it"


def test_metrics_of_a_schedule_that_have_not_changed_rates_yet() -> None:
    def judged(*values: float) -> LawVerdict:
        ranks = ([{"kind": "metric", "step": 4, "value": value, "line": "train.py:8"}, step()] for value in values)
        return steps.hyperparameters_are_equal(evidence(*ranks))

    assert cause(judged(0.61, 0.58)) == "schedule-metric-differs"
    assert judged(0.61, 0.6100001).status == "held"
    for value in (math.nan, math.inf):
        assert judged(value, value).status == "held", "the ranks diverge together"


def test_a_scaler_that_looks_at_local_gradients() -> None:
    def events(grads: str, stepped: bool = True) -> list[Event]:
        unscale: Event = {"kind": "unscale", "step": 0, "grads": [grads], "line": "train.py:7"}
        return [unscale, {"kind": "scaled_step", "step": 0, "stepped": stepped, "scale": 8.0, "line": "train.py:9"}]

    judge = steps.ranks_skip_the_same_steps
    assert judge(evidence(events("a"), events("a"))).status == "held"
    assert cause(judge(evidence(events("a"), events("b")))) == "scaler-checks-own-gradients"
    assert cause(judge(evidence(events("a"), events("a", stepped=False)))) == "skipped-step-differs"


NOTHING_ELSE = "nothing else is wrong with the rates"


def scheduled(
    places: list[int], rates: list[float] | None = None, *, length: int | None = 16, why: str = "finished", **begin: Any
) -> Evidence:
    """Two epochs of 4 batches of 4 on each of 2 ranks, from 32 samples. places: of the schedule, before each step."""
    loader = {"kind": "loader", "key": "a", "size": 32, "batch_size": 4, "batches": 4, "line": "train.py:3"}
    events: list[Event] = [{"kind": "begin", "mentions": [], **begin}, loader]
    events.append(
        {"kind": "schedule", "schedule": 0, "optimizer": 0, "name": "OneCycleLR", "length": length, "line": "a.py:4"}
    )
    for number, place in enumerate(places):
        events.append({"kind": "batch", "key": "a", "passed": number // 4, "grad": True, "step": number})
        rate = rates[number] if rates else 0.1
        events += [backward(step=number), step(number, schedules=[place], groups=[{"lr": rate}])]
    events.append({"kind": "end", "why": why})
    return evidence(events, events)


def test_schedules_for_the_steps_of_one_process() -> None:
    judge = schedules.schedules_fit_the_run
    assert cause(judge(scheduled(list(range(8))))) == "schedule-made-for-one-process"
    assert judge(scheduled(list(range(8)), length=8)).status == "held"
    assert judge(scheduled(list(range(8)), length=20)).status == "held", "no number of batches of one process"
    assert judge(scheduled(list(range(0, 16, 2)))).status == "held", "stepped once for each rank"
    cut, stopping = scheduled(list(range(8)), why="enough"), scheduled(list(range(8)), mentions=["break"])
    assert judge(cut).note.startswith("the run was not watched to its end")
    assert judge(stopping).note.startswith("the script has a break")
    assert judge(scheduled(list(range(8)), length=None)).note.startswith("the length of OneCycleLR is not known")
    assert judge(evidence([step()], [step()])).status == "not judged"


def judged_rates(*rates: float, each: int = 1, why: str = "finished") -> LawVerdict:
    """each: the number of times that the schedule advances in a step."""
    places = list(range(0, each * len(rates), each)) if each else [0] * len(rates)
    return schedules.schedules_fit_the_run(scheduled(places, list(rates), length=None, why=why))


def test_a_learning_rate_that_is_zero_long_before_the_end() -> None:
    assert cause(judged_rates(*[0.2] * 8, *[0.0] * 8)) == "learning-rate-ends-early"
    for note in (judged_rates(*[0.2] * 8, *[0.0] * 8, each=0), judged_rates(*[0.2] * 20, *[0.0] * 6)):
        assert (note.status, "learning rate is 0" in note.observation) == ("held", True), "one process may do the same"
    for silent in (judged_rates(0.4, 0.3, 0.2, 0.1, 0.0), judged_rates(*[0.0] * 8), judged_rates(*[0.0] * 5, 0.2, 0.1)):
        assert (silent.status, silent.observation) == ("not judged", "")
        assert silent.note.endswith(NOTHING_ELSE)


def test_a_schedule_that_counts_ranks() -> None:
    fast = (8.0, 7.0, 6.0, 5.0, 4.0, 3.0, *[2.0] * 6)
    assert cause(judged_rates(*fast, each=2)) == "schedule-counts-ranks"
    assert cause(judged_rates(0.4, 0.3, 0.2, *[0.0] * 5, each=2, why="enough")) == "schedule-counts-ranks"
    assert judged_rates(*fast).note.endswith(NOTHING_ELSE), (
        "it advances once in each step, and ends early as it is meant to"
    )
    assert judged_rates(*fast[:6], 2.0, 1.0, 0.5, 0.4, 0.3, 0.2, each=2).note.endswith(NOTHING_ELSE), (
        "it falls until the end"
    )
    assert judged_rates(8.0, *[2.0] * 11, each=2).note.endswith(NOTHING_ELSE), "it ends elsewhere"
    assert judged_rates(*fast, each=2, why="enough").note.endswith(NOTHING_ELSE), "the run was not watched to its end"


@pytest.mark.parametrize(
    ("micro_batches", "found"), [(2, "schedule-counts-micro-batches"), (1, "schedule-counts-ranks")]
)
def test_a_schedule_that_counts_micro_batches(micro_batches: int, found: str) -> None:
    """As many micro-batches as ranks: both causes are told."""
    fast = (8.0, 7.0, 6.0, 5.0, 4.0, 3.0, *[2.0] * 6)
    seen = scheduled(list(range(0, 24, 2)), list(fast), length=None)
    events = [
        each
        for event in seen.real.events[0]
        for each in [event] * (micro_batches if event["kind"] == "backward" else 1)
    ]
    verdict = schedules.schedules_fit_the_run(evidence(events, events))
    assert cause(verdict) == found
    assert len(verdict.causes) == micro_batches


@pytest.mark.parametrize(
    ("rate", "batch", "found"),
    [(0.2, 16, "rate-scaled-without-batch"), (0.1, 16, ""), (0.2, 32, ""), (0.3, 16, "")],
)
def test_a_learning_rate_that_is_scaled_for_a_batch_that_does_not_grow(rate: float, batch: int, found: str) -> None:
    """One process has a rate of 0.1 and batches of 32 samples."""

    def run(rate: float, batch: int) -> list[Event]:
        loader = {"kind": "loader", "key": "a", "batch_size": batch, "line": "train.py:4"}
        batches: Event = {"kind": "batch", "key": "a", "passed": 0, "grad": True, "step": 0}
        schedule = {
            "kind": "schedule",
            "schedule": 0,
            "optimizer": 0,
            "name": "StepLR",
            "length": None,
            "line": "a.py:4",
        }
        return [loader, schedule, batches, backward(), step(groups=[{"lr": rate}])]

    own = run(rate, batch)
    seen = replace(evidence(own, own), mirrors={"one": RunSeen((tuple(run(0.1, 32)),))})
    judged = schedules.schedules_fit_the_run(seen)
    assert (cause(judged) if found else judged.note[-len(NOTHING_ELSE) :]) == (found or NOTHING_ELSE)


def test_a_learning_rate_that_follows_the_samples_of_one_rank() -> None:
    def judged(own: Callable[[int], float], whole: Callable[[int], float]) -> LawVerdict:
        real, one = ([step(n, groups=[{"lr": rate(n)}]) for n in range(12)] for rate in (own, whole))
        alone = RunSeen((tuple(one[:6]),))
        return schedules.schedules_fit_the_run(replace(evidence(real, real), mirrors={"one": alone}))

    for before in (0, 1):
        found = judged(lambda n, own=before: 1.0 - 0.02 * (n + own), lambda n, own=before: 1.0 - 0.04 * (n + own))
        assert cause(found) == "schedule-counts-own-samples"
    assert cause(judged(lambda n: 10.1 * n + n % 2, lambda n: 20.0 * n + 0.5)) == "schedule-counts-own-samples", (
        "tokens"
    )
    assert judged(lambda n: 1.0 - 0.02 * n, lambda n: 1.0 - 0.02 * n).status == "not judged"
    assert judged(lambda n: 0.1, lambda n: 0.1).status == "not judged"
    assert judged(lambda n: 0.1 * n, lambda n: 0.2 * n).status == "not judged", (
        "the rate may be divided by the world size"
    )
    assert judged(lambda n: 1.0 - 0.04 * n, lambda n: 1.0 - 0.02 * n).status == "not judged", (
        "it counts N steps for each"
    )


def test_windows() -> None:
    def run(scale: float, last: float, sizes: tuple[int, ...] = (4, 4, 2), root: str = "NllLoss") -> Evidence:
        events: list[Event] = []
        for number, size in enumerate(sizes):
            own = last if size < 4 else scale
            events += [backward(place, step=number, scale=own, root=root) for place in range(size)]
            events.append(step(number, backwards=size))
        return evidence(events, events)

    judge = accumulation.windows_divide_by_their_size
    assert judge(run(0.25, 0.5)).status == "held"
    assert cause(judge(run(1.0, 1.0))) == "accumulation-not-divided"
    assert cause(judge(run(0.25, 0.25))) == "last-window-divided-by-full-count"
    assert judge(run(1.0, 1.0, root="Div")).status == "held"
    assert judge(run(1.0, 1.0, sizes=(1, 1))).status == "not judged"


@pytest.mark.parametrize(
    ("synchronised", "found"),
    [((True, True), "communication-every-micro-batch"), ((False, True), ""), ((True, False), ""), ((False, False), "")],
)
def test_micro_batches_that_communicate(synchronised: tuple[bool, ...], found: str) -> None:
    """Of a window that synchronises its first micro-batch only, another law says that the last is not synchronised."""
    events: list[Event] = [{"kind": "no_sync", "step": 0, "number": 0, "line": "train.py:6"}]
    for number, sync in enumerate(synchronised):
        forward = {"kind": "forward", "step": 0, "grad": True, "sync": sync, "line": "train.py:7"}
        events += [given(0), forward, backward(number, scale=0.5)]
    judged = accumulation.only_the_last_micro_batch_communicates(evidence(*[[*events, step(backwards=2)]] * 2))
    assert [each.id for each in judged.causes] == [found] * bool(found)


def given(step: int, key: str = "a") -> Event:
    return {"kind": "batch", "step": step, "size": 8, "grad": True, "key": key, "passed": 0, "number": 0}


LAWS_OF_WINDOWS = (
    accumulation.windows_divide_by_their_size,
    accumulation.windows_are_stepped,
    accumulation.only_the_last_micro_batch_communicates,
)


@pytest.mark.parametrize("count", [2, 4])
def test_micro_batches_of_two_branches(count: int) -> None:
    """The last micro-batch of a window has a line of its own, and its gradient is synchronised."""

    def run(*sizes: int, forward: str = "inside", scale: float = 1 / count) -> Evidence:
        events: list[Event] = [{"kind": "no_sync", "step": 0, "number": 0, "line": "train.py:6"}]
        for number, size in enumerate(sizes):
            for place in range(size):
                last = place + 1 == size
                sync = last or forward == "outside"
                own = {"line": "train.py:10"} if last else {"sync": [False]}
                events += [
                    given(number),
                    {"kind": "forward", "step": number, "grad": True, "sync": sync, "line": "train.py:7"},
                    backward(place, step=number, scale=scale, **own),
                ]
            events.append(step(number, backwards=size))
        end: Event = {
            "kind": "epoch_end", "key": "a", "passed": 0, "cut": False, "step": len(sizes), "pending": 0, "trained": True,
        }  # fmt: skip
        return evidence([*events, end], events)

    right = run(count, count, count)
    assert [judge(right).status for judge in LAWS_OF_WINDOWS] == ["held"] * 3
    divided, stepped, communicates = LAWS_OF_WINDOWS
    assert cause(divided(run(count, count, scale=1.0))) == "accumulation-not-divided"
    assert cause(divided(run(count, count, count - 1))) == "last-window-divided-by-full-count"
    assert cause(communicates(run(count, count, forward="outside"))) == "no-sync-around-backward-only"
    *events, end = right.real.events[0]
    pending = {**end, "pending": 1}
    leaked = evidence([*events, pending])
    assert cause(stepped(leaked)) == "last-window-not-stepped"


@pytest.mark.parametrize(
    "batches",
    [
        [given(0)],
        [given(0, "photographs"), given(0, "drawings")],
        [],
    ],
    ids=["one batch", "a batch of each loader", "no batch seen"],
)
def test_two_losses_of_a_step_are_no_micro_batches(batches: list[Event]) -> None:
    events = [*batches, backward(0), backward(1, line="train.py:10"), step(backwards=2)]
    for judge in LAWS_OF_WINDOWS:
        judged = judge(evidence(events))
        assert (judged.status, judged.note[:34]) == ("not judged", "steps have several backward passes"), judged


def test_losses_of_two_kinds_on_two_batches_are_no_micro_batches() -> None:
    events = [given(0), backward(0), given(0), backward(1, line="train.py:10", root="MseLoss"), step(backwards=2)]
    assert accumulation.windows_divide_by_their_size(evidence(events)).status == "not judged"


@pytest.mark.parametrize(
    ("sizes", "scales", "told"),
    [
        ((16, 16, 6), (1 / 3, 1 / 3, 1 / 3), True),
        ((16, 16, 6), (16 / 38, 16 / 38, 6 / 38), False),
        ((16, 16, 16), (1 / 3, 1 / 3, 1 / 3), False),
    ],
)
@pytest.mark.parametrize("mean", [True, False])
def test_micro_batches_of_different_sizes_that_count_alike_are_a_note(
    sizes: tuple[int, ...], scales: tuple[float, ...], told: bool, mean: bool
) -> None:
    events: list[Event] = []
    for number, (size, scale) in enumerate(zip(sizes, scales, strict=True)):
        events.append(
            {"kind": "batch", "step": 0, "size": size, "grad": True, "key": "a", "passed": 0, "number": number}
        )
        events.append(backward(number, scale=scale, mean=mean))
    judged = accumulation.windows_divide_by_their_size(evidence([*events, step(backwards=3)]))
    assert judged.status == "held"
    assert ("16, 16, 6" in judged.observation) == (told and mean), "a sum may have been divided before"


def draw(digest: str, shape: list[int], line: str = "train.py:6") -> Event:
    return {
        "kind": "draw", "op": "bernoulli_", "key": f"bernoulli_ {line} 0", "step": 0, "digest": digest, "shape": shape,
        "line": line, "integer": False, "training": True, "backwards": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("backwards", "found"), [(1, "broken"), (2, "not judged")])
def test_noise_that_is_added_to_gradients_is_common(backwards: int, found: str) -> None:
    """It is drawn after the last of two backward passes. What is drawn before belongs to the samples."""
    events = [{**draw("a", [8, 4]), "backwards": backwards}, step(backwards=2)]
    judged = randomness.random_streams_are_as_asked(evidence(events, events))
    assert judged.status == found


def test_draws_of_a_data_set_are_compared_too() -> None:
    of_loading = [{**draw(digest, [8, 4]), "kind": "loading_draw"} for digest in "aab"]
    judge = randomness.random_streams_are_as_asked
    assert cause(judge(evidence(of_loading[:1], of_loading[1:2]))) == "same-random-draws-on-every-rank"
    assert judge(evidence(of_loading[:1], of_loading[2:])).status == "held"
    asked = replace(evidence(of_loading[:1], of_loading[2:]), random_streams="equal")
    assert judge(asked).status == "not judged", "each rank has other samples"


@pytest.mark.parametrize(("length", "found"), [(8, "broken"), (64, "not judged")])
def test_an_order_of_the_whole_data_set_is_common(length: int, found: str) -> None:
    batch = {"kind": "batch", "key": "a", "passed": 0, "size": 8, "grad": False, "digest": "", "rows": [], "line": ""}
    events = [batch, {**draw("a", [length]), "op": "randperm"}]
    assert randomness.random_streams_are_as_asked(evidence(events, events)).status == found


def test_a_draw_for_all_ranks_is_common() -> None:
    """One process makes a shorter one: each rank takes its part."""
    ranks = [draw("a", [32])], [draw("a", [32])]
    one = RunSeen(((({"kind": "draw_of_all", "line": "train.py:6"}),),), ("",))
    judge = randomness.random_streams_are_as_asked
    assert judge(replace(evidence(*ranks), mirrors={"one": one})).status == "held"
    assert judge(replace(evidence(*ranks), mirrors={"one": RunSeen(((),), ("",))})).status == "broken"


def test_random_draws() -> None:
    judge = randomness.random_streams_are_as_asked
    different = evidence([draw("a", [8, 4])], [draw("b", [8, 4])])
    same = evidence([draw("a", [8, 4])], [draw("a", [8, 4])])
    assert judge(different).status == "held"
    assert cause(judge(same)) == "same-random-draws-on-every-rank"
    number = evidence([draw("a", [])], [draw("a", [])])
    assert judge(number).status == "not judged", "one number belongs to the whole step"
    assert judge(replace(same, random_streams="equal")).status == "held"
    assert cause(judge(replace(different, random_streams="equal"))) == "random-draws-differ"
    assert (
        cause(judge(replace(evidence([draw("a", [])], [draw("b", [])]), random_streams="equal")))
        == "random-draws-differ"
    )
    assert judge(replace(same, random_streams="any")).status == "not judged"
    uneven = evidence([draw("a", [8, 4])], [draw("b", [6, 4])])
    assert judge(replace(uneven, random_streams="equal")).status == "not judged", (
        "a shorter last batch has a shorter draw"
    )
