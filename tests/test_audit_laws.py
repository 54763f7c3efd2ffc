"""Laws of a run on hand-written evidence: events in, verdicts out, without running a script and without torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ddpcheck.audit import gradient_weights
from ddpcheck.audit.evidence import Evidence, RunSeen, StepSeen
from ddpcheck.audit.laws import (
    LAWS,
    accumulation,
    batch_means,
    constant_gradients,
    data,
    gradients,
    randomness,
    replicas,
    results,
    resuming,
    schedules,
    steps,
    world,
)
from ddpcheck.audit.laws.law import LawVerdict
from ddpcheck.audit.verdicts import answer, verdicts_of
from ddpcheck.causes import Kind, as_listed, audit

Event = dict[str, Any]


def evidence(*ranks: list[Event], compared: tuple[StepSeen, ...] = (), **more: Any) -> Evidence:
    real = RunSeen(tuple(tuple(events) for events in ranks), ("",) * len(ranks), **more)
    return Evidence(("train.py",), len(ranks), 6, 400, real, {}, compared)


def step(number: int = 0, **changes: Any) -> Event:
    made: Event = {
        "kind": "step", "step": number, "optimizer": 0, "groups": [{"lr": 0.1}], "grads": ["a"], "covered": ["synchronised"],
        "parts": [1], "zero": False, "finite": True, "backwards": 1, "precision": "", "line": "train.py:9",
    }  # fmt: skip
    return {**made, **changes}


def state(number: int = 0, **digests: str) -> Event:
    return {
        "kind": "state", "step": number, "number": number, "digests": digests, "unoptimized": [], "strays": [], "grad": True,
        "line": "train.py:5",
    }  # fmt: skip


def backward(number: int = 0, **changes: Any) -> Event:
    made: Event = {
        "kind": "backward",
        "step": 0,
        "number": number,
        "line": "train.py:8",
        "sync": [True],
        "scale": 1.0,
        "root": "NllLoss",
        "loss": None,
    }
    return {**made, **changes}


def cause(judged: LawVerdict) -> str:
    assert judged.status == "broken"
    return judged.causes[0].id


def test_every_law_has_a_name_of_its_own_and_a_sentence() -> None:
    assert len({law.name for law in LAWS}) == len(LAWS)
    assert all(law.sentence.endswith(".") and len(law.sentence.split()) <= 20 for law in LAWS)


def test_headlines_of_causes_are_short() -> None:
    families = [getattr(audit, name) for name in audit.__all__]
    kinds = [kind for family in families for kind in vars(family).values() if isinstance(kind, Kind)]
    assert len(kinds) > 30
    assert all(len(as_listed(kind.headline).split()) <= 20 for kind in kinds)


def test_laws_without_observations_are_not_judged() -> None:
    nothing = evidence([], [])
    verdicts = verdicts_of(nothing)
    assert {verdict.status for verdict in verdicts} <= {"skipped", "failed", "passed"}
    assert answer(nothing, verdicts)[0] != 0


def test_a_script_that_ends_before_it_trains_is_not_judged() -> None:
    ended = [{"kind": "installed"}, {"kind": "end", "why": "finished"}]
    assert world.ranks_form_one_world(evidence(ended, ended)).status == "not judged"
    alone = [{"kind": "installed"}, backward(), {"kind": "end", "why": "finished"}]
    assert cause(world.ranks_form_one_world(evidence(alone, alone))) == "world-is-one"


@pytest.mark.parametrize("no_gpu", [False, True])
def test_a_script_that_finds_no_gpu_is_not_judged_unless_it_ran_without(no_gpu: bool) -> None:
    error = "RuntimeError: No CUDA GPUs are available"
    end = {"kind": "end", "why": "raised", "error": error, "line": "train.py:3", "at": 1.0}
    ended = [{"kind": "installed", "no_gpu": no_gpu}, end]
    seen = evidence(ended, ended)
    judged = world.ranks_end_without_error(seen)
    assert judged.status == ("broken" if no_gpu else "not judged")
    status, first = answer(seen, verdicts_of(seen))
    assert (status, "--no-gpu" in first) == ((1, False) if no_gpu else (2, True))


def test_sharded_parameters_are_not_compared() -> None:
    sharded = {"kind": "sharded", "optimizer": 0, "line": "train.py:4"}
    ranks = [[sharded, state(0, **{"0.0": part}), step(grads=[part])] for part in "ab"]
    seen = evidence(*ranks)
    for law in (replicas.ranks_start_from_the_same_parameters, replicas.replicas_stay_equal,
                gradients.gradients_are_synchronised, gradients.gradients_equal_those_of_one_process):  # fmt: skip
        judged = law(seen)
        assert judged.status == "not judged"
        assert "train.py:4" in judged.note


def test_a_crashed_law_is_unknown() -> None:
    verdicts = verdicts_of(evidence([{"kind": "step"}], [{"kind": "step"}]))
    assert "unknown" in {verdict.status for verdict in verdicts}


def test_hyperparameters() -> None:
    assert steps.hyperparameters_are_equal(evidence([step()], [step()])).status == "held"
    other = step(groups=[{"lr": 0.2}])
    assert cause(steps.hyperparameters_are_equal(evidence([step()], [other]))) == "learning-rate-differs"
    a, b = (step(groups=[{"lr": 0.1, "weight_decay": w}]) for w in (0.0, 0.1))
    found = steps.hyperparameters_are_equal(evidence([a], [b]))
    assert cause(found) == "hyperparameters-differ"
    assert found.causes[0].get("name") == "weight_decay"


def test_a_scaler_that_looks_at_local_gradients() -> None:
    def events(grads: str, stepped: bool = True) -> list[Event]:
        unscale: Event = {"kind": "unscale", "step": 0, "grads": [grads], "line": "train.py:7"}
        return [unscale, {"kind": "scaled_step", "step": 0, "stepped": stepped, "scale": 8.0, "line": "train.py:9"}]

    judge = steps.ranks_skip_the_same_steps
    assert judge(evidence(events("a"), events("a"))).status == "held"
    assert cause(judge(evidence(events("a"), events("b")))) == "scaler-checks-own-gradients"
    assert cause(judge(evidence(events("a"), events("a", stepped=False)))) == "skipped-step-differs"


def test_replicas() -> None:
    def names(parameter: str, *, later: str = "w", buffer: str = "s", module: str = "m") -> list[Event]:
        return [state(0, **{"0.0": parameter}), state(1, **{"0.0": later, "b0.codes": buffer, "m1.weight": module})]

    same = evidence(names("p"), names("p"))
    assert replicas.ranks_start_from_the_same_parameters(same).status == "held"
    assert replicas.replicas_stay_equal(same).status == "held"
    start = evidence(names("p"), names("q"))
    assert cause(replicas.ranks_start_from_the_same_parameters(start)) == "different-initial-parameters"
    assert replicas.replicas_stay_equal(start).status == "not judged"
    assert cause(replicas.replicas_stay_equal(evidence(names("p"), names("p", later="x")))) == "replicas-drift"
    assert cause(replicas.buffers_are_equal(evidence(names("p"), names("p", buffer="x")))) == "buffers-differ"
    models = evidence(names("p"), names("p", module="x"))
    assert cause(replicas.evaluated_models_are_equal(models)) == "evaluated-models-differ"


WRAPPED: Event = {"kind": "wrapped", "broadcast_buffers": True, "line": "train.py:3"}


def sends(digest: str, buffer: str = "book.codes", step: int = 2) -> Event:
    made: Event = {"kind": "collective", "op": "broadcast", "step": step, "line": "train.py:6"}
    return made | {"buffer": buffer, "root": 0, "digest": digest}


@pytest.mark.parametrize(
    ("buffer", "lost"), [("book.codes", True), ("norm.running_mean", False)], ids=["codes", "statistics"]
)
def test_updates_of_buffers_may_be_lost(buffer: str, lost: bool) -> None:
    by_the_script = replicas.buffers_are_equal(evidence([sends("a", buffer)], [sends("b", buffer)]))
    assert [each.id for each in by_the_script.causes] == ["buffer-of-one-rank"] * lost
    wrapped = evidence(*([WRAPPED, state(1, **{f"b0.{buffer}": digest})] for digest in "ab"))
    by_the_wrapper = replicas.buffers_are_equal(wrapped)
    assert (by_the_wrapper.status, buffer in by_the_wrapper.observation) == ("held", lost)
    for right in (evidence([sends("a")], [sends("a")]), evidence([sends("a", step=0)], [sends("b", step=0)])):
        assert replicas.buffers_are_equal(right).status == "not judged"


@pytest.mark.parametrize(
    ("covered", "found"),
    [
        ("frozen", "parameter-unfrozen-after-wrapping"),
        ("ignored", "parameter-not-synchronised"),
        ("synchronised", "forward-bypasses-wrapper"),
    ],
)
def test_unsynchronised_gradients(covered: str, found: str) -> None:
    ranks = [[WRAPPED, backward(), step(grads=[value], covered=[covered])] for value in "ab"]
    assert cause(gradients.gradients_are_synchronised(evidence(*ranks))) == found


def compared(**changes: Any) -> StepSeen:
    made: dict[str, Any] = {
        "step": 0, "optimizer": 0, "v": (0.5, 0.5), "w": ((0.5, 0.5),), "factor_one": 1.0, "noise": 1e-7, "relative_off": 1e-7,
    }  # fmt: skip
    return StepSeen(**{**made, **changes})


OFF = {"0.0": 900.0}


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (compared(), "held"),
        (compared(v=(1.0, 1.0), factor_one=2.0, off_one=OFF), "gradients-summed"),
        (compared(factor_one=2.0, off_one=OFF), "gradients-scaled"),
        (compared(factor_one=0.5, w=((1.0, 1.0),), off_one=OFF), "held"),
        (compared(factor_one=1.1, factor_one_off=50.0, w=((0.3, 0.7),), off_one=OFF), "loss-normalised-per-rank"),
        (compared(factor_one=1.1, factor_one_off=50.0, w=((1.0, 0.0),), off_one=OFF), "not judged"),
        (compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF), "loss-couples-samples"),
        (compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF, order_matters=True), "not judged"),
        (compared(factor_one_off=50.0, v_off=OFF, off_one=OFF), "reduction-is-no-combination"),
        (compared(not_comparable="random results do not fit together"), "not judged"),
    ],
)
def test_gradients_against_one_process(seen: StepSeen, found: str) -> None:
    """A table of answers of both mirrors, with the expected cause."""
    ranks = [[state(0, **{"0.0": "p"}), backward(), step()] for _ in range(2)]
    judged = gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(seen,)))
    assert (judged.causes[0].id if judged.causes else judged.status) == found


def lossy(whole: float, own: float = 1.0, *, scale: float = 1.0, reduces: bool = False) -> Evidence:
    """Gradients are half of one process's, whose loss is `whole`; the ranks' is `own`, times `scale`."""
    reduced = {"kind": "collective", "op": "all_reduce", "step": 0, "loses_gradient": reduces, "line": "train.py:7"}
    calls = [state(0, **{"0.0": "p"}), reduced, backward(loss=own, scale=scale, root="Fused"), step()]
    alone = RunSeen(((backward(loss=whole, root="Fused"),),))
    half = compared(factor_one=0.5, w=((1.0, 1.0),), off_one=OFF)
    return replace(evidence(calls, calls, compared=(half,)), mirrors={"one": alone})


def test_a_gradient_lost_in_the_loss_is_no_sum_over_samples() -> None:
    judge = gradients.gradients_equal_those_of_one_process
    assert judge(lossy(2.0)).status == "held"
    assert cause(judge(lossy(1.0))) == "gradient-smaller-than-loss"
    assert cause(judge(lossy(1.0, scale=2.0))) == "loss-factor-ignored"
    assert cause(judge(lossy(1.0, reduces=True))) == "reduced-without-gradient"
    assert judge(lossy(float("nan"), float("nan"))).status == "held"


def test_ranks_that_draw_from_all_samples() -> None:
    def judged(*batches: str) -> LawVerdict:
        """Every rank reads batches of rows; rank 1 reads those of the second half."""
        loader = {"kind": "loader", "key": "l", "line": "train.py:4", "iterable": True, "workers": 0}
        ranks = []
        for rank in range(2):
            events: list[Event] = [loader]
            for rows in batches[rank * len(batches) // 2 :][: len(batches) // 2]:
                batch = {
                    "kind": "batch", "key": "l", "passed": 0, "grad": True, "rows": list(rows), "size": len(rows),
                    "digest": "".join(rows), "line": "train.py:5", "indices": None,
                }  # fmt: skip
                events += [batch, backward()]
            ranks.append(events)
        return data.ranks_read_different_shards(evidence(*ranks))

    alike = judged("abc", "bca", "dab", "abc", "bca", "cdb")
    assert cause(alike) == "ranks-draw-alike"
    assert "2 of 3" in alike.causes[0].headline
    assert judged("abc", "bca", "dab", "abc", "cab", "bda").status == "held"
    assert cause(judged("abc", "def", "cfa", "bde")) == "same-data-on-every-rank"
    assert judged("abc", "def", "ghi", "jkl").status == "held"


@pytest.mark.parametrize(
    ("sums", "found"),
    [
        ((12.0, 28.0), "class-weights-normalised-per-rank"),
        ((20.0, 20.0), "loss-normalised-per-rank"),
        ((12.0, None), "loss-normalised-per-rank"),
    ],
)
def test_class_weights_are_a_cause_if_their_sums_explain_the_gradient(
    sums: tuple[float | None, ...], found: str
) -> None:
    ranks = [[state(0, **{"0.0": "p"}), backward(), step()] for _ in sums]
    for events, own in zip(ranks, sums, strict=True):
        if own is not None:
            events += [
                {"kind": "class_weights", "step": 0, "backwards": 0, "targets": 16, "weights": own, "line": "a.py:7"},
                {"kind": "class_weights", "step": 1, "backwards": 0, "targets": 16, "weights": 9.0, "line": "a.py:7"},
            ]
    off = compared(factor_one=1.1, factor_one_off=50.0, w=((0.3, 0.7),), off_one=OFF)
    judged = gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(off,)))
    assert cause(judged) == found
    assert ("12, 28" in judged.causes[0].because) == (found == "class-weights-normalised-per-rank")


def test_a_loss_that_is_divided_twice_has_the_factor_of_identical_ranks() -> None:
    """A plain sum over samples that is averaged is N times as large in N identical ranks, and may be meant."""

    def judged(factor_all: float, rate_of_one: float = 0.1) -> LawVerdict:
        ranks = [[state(0, **{"0.0": "p"}), backward(), step()] for _ in range(2)]
        seen = compared(factor_one=0.5, factor_all=factor_all, w=((1.0, 1.0),), off_one=OFF)
        one = RunSeen(((step(groups=[{"lr": rate_of_one}]),),))
        return gradients.gradients_equal_those_of_one_process(
            replace(evidence(*ranks, compared=(seen,)), mirrors={"one": one})
        )

    assert cause(judged(1.0)) == "loss-divided-twice"
    assert judged(0.5).status == "held"
    assert judged(1.0, rate_of_one=0.05).status == "held", "a rate that grows with the world size makes up for it"


@pytest.mark.parametrize(
    ("firsts", "columns", "found"),
    [
        ((0, 0), 64, "targets-not-shifted-by-rank"),
        ((0, 32), 64, "loss-couples-samples"),
        ((0, 0), 32, "loss-couples-samples"),
    ],
)
def test_targets_of_gathered_features(firsts: tuple[int, ...], columns: int, found: str) -> None:
    def positions(first: int) -> Event:
        shape = {"rows": 32, "columns": columns}
        return {"kind": "positions", "step": 0, **shape, "first": first, "line": "train.py:6"}

    ranks = [[state(0, **{"0.0": "p"}), positions(first), backward(), step()] for first in firsts]
    off = compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF)
    assert cause(gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(off,)))) == found


def test_a_value_that_each_rank_has_of_its_own() -> None:
    def judged(*digests: str, line: str = "train.py:7") -> LawVerdict:
        used = [
            {"kind": "constant", "step": 1, "digest": each, "shape": [4], "line": line if n else "train.py:7"}
            for n, each in enumerate(digests)
        ]
        ranks = [[state(0, **{"0.0": "p"}), each, backward(), step()] for each in used]
        off = compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF)
        return gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(off,)))

    assert cause(judged("a", "b")) == "value-differs-between-ranks"
    assert cause(judged("a", "a")) == cause(judged("a", "b", line="train.py:9")) == "loss-couples-samples"


def test_parts_of_split_gradients_with_factors_of_their_own() -> None:
    wanted = {"a": np.array([1.0, 2.0, 0.0, 4.0]), "b": np.array([3.0, -3.0])}
    apart = {"a": wanted["a"] * [0.5, 0.5, 1.0, 1.0], "b": wanted["b"] * [0.5, 1.0]}
    assert gradient_weights.factors_of_parts(apart, wanted, 2) == (0.5, 1.0)
    assert gradient_weights.factors_of_parts({name: 0.5 * each for name, each in wanted.items()}, wanted, 2) == ()
    noisy = {"a": wanted["a"] * [0.5, 0.7, 1.0, 1.0], "b": apart["b"]}
    assert gradient_weights.factors_of_parts(noisy, wanted, 2) == ()
    off = compared(factor_one_off=50.0, v_off=OFF, off_one=OFF, part_factors=(0.5, 1.0))
    ranks = [[state(0, **{"0.0": "p"}), backward(), step()] for _ in range(2)]
    judged = gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(off,)))
    assert cause(judged) == "parts-scaled-apart"


def test_evaluations_that_read_samples_twice_are_noted() -> None:
    def judged(read: int, *mentions: str) -> str:
        loader = {"kind": "loader", "key": "v", "size": 100, "line": "train.py:4"}
        batch = {"kind": "batch", "key": "v", "passed": 0, "size": read, "grad": False, "step": 3}
        end = {"kind": "epoch_end", "key": "v", "passed": 0, "cut": False}
        events = [{"kind": "begin", "mentions": list(mentions)}, loader, batch, end]
        return results.metrics_are_combined(evidence(events, events)).observation

    assert "128 samples of 100" in judged(64)
    assert judged(50) == judged(64, "gather_for_metrics") == judged(100) == ""


def module(name: str = "Teacher") -> Event:
    return {"kind": "module", "name": name, "place": 0}


@pytest.mark.parametrize(
    ("digests", "found"),
    [
        (("aa", "bb"), "untrained-parameters-start-different"),
        (("ab", "cd"), "untrained-parameters-start-different"),
        (("aa", "ab"), "evaluated-models-differ"),
    ],
    ids=["frozen", "updated on all ranks", "updated on one rank"],
)
def test_untrained_parameters(digests: tuple[str, str], found: str) -> None:
    ranks = [[module(), *(state(n + 1, **{"m0.weight": value}) for n, value in enumerate(own))] for own in digests]
    seen = evidence(*ranks)
    assert cause(replicas.evaluated_models_are_equal(seen)) == found


def test_gradients_of_ranks_with_different_teachers_are_not_judged() -> None:
    ranks = [[module(), state(0, **{"0.0": "p", "m0.weight": own}), backward(), step()] for own in "ab"]
    off = compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF)
    judged = gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(off,)))
    assert judged.status == "not judged"
    assert "Teacher" in judged.note


def dealt_out(*sent: str) -> Evidence:
    """Rank 0 steps a and c, rank 1 steps b. sent: the digests of c on the ranks after a step."""
    ranks: list[list[Event]] = []
    for own, others, last in zip(("ac", "b"), ("b", "ac"), sent, strict=True):
        events: list[Event] = [{"kind": "group", "optimizer": 0, "line": "train.py:4"}]
        events.append({"kind": "names", "names": {f"0.{place}": name for place, name in enumerate(own)}})
        for number in range(2):
            digests = {name: f"{name}{number}" for name in "abc"}
            digests["c"] = last if number else digests["c"]
            keys = {f"0.{place}": digests[name] for place, name in enumerate(own)}
            keys |= {f"m0.{name}": digests[name] for name in others}
            events += [state(number, **keys), step(number, grads=list(own))]
        ranks.append(events)
    return evidence(*ranks)


def test_optimizers_that_hold_parts_of_the_parameters() -> None:
    right = dealt_out("c1", "c1")
    assert replicas.ranks_start_from_the_same_parameters(right).status == "held"
    assert replicas.replicas_stay_equal(right).status == "held"
    assert gradients.gradients_are_synchronised(right).status == "not judged"
    found = replicas.replicas_stay_equal(dealt_out("c1", "c0")).causes
    assert [each.id for each in found] == ["parameter-not-sent-by-its-owner", "replicas-drift"]
    assert (found[0].get("rank"), found[0].get("parameter")) == (0, "c")


def test_a_checkpoint_that_one_rank_reads_in_the_middle() -> None:
    def judged(number: int) -> list[str]:
        load = {"kind": "load", "path": "best.pt", "step": number, "line": "train.py:7"}
        ranks = [[load, step(3, groups=[{"lr": 0.1}])], [step(3, groups=[{"lr": 0.2}])]]
        return [each.id for each in steps.hyperparameters_are_equal(evidence(*ranks)).causes]

    assert judged(2) == ["state-restored-on-one-rank", "learning-rate-differs"]
    assert judged(0) == judged(4) == ["learning-rate-differs"], "at the start, and after the difference"


def reads(rows: list[str], indices: list[int] | None = None, *, iterable: bool = True) -> list[Event]:
    """One batch that is trained on, with a digest for each sample."""
    loader = {"kind": "loader", "key": "a", "iterable": iterable, "workers": 0, "line": "train.py:3", "size": 64}
    kind = {"sampler": "Weighted", "batch_sampler": "BatchSampler", "subset": None, "base_size": 64, "batch_size": 8}
    batch = {
        "kind": "batch",
        "key": "a",
        "passed": 0,
        "rows": rows,
        "indices": indices,
        "size": len(rows),
        "grad": True,
    }
    end = {"kind": "epoch_end", "key": "a", "passed": 0, "cut": False}
    return [{**loader, **kind}, {**batch, "step": 0, "digest": str(rows), "line": "train.py:5"}, backward(), end]


def test_samples_of_an_iterable_data_set_that_come_to_several_ranks() -> None:
    def judged(first: int, *again: int) -> LawVerdict:
        own = [[f"row {row}" for row in range(begin, begin + 64)] for begin in (0, first)]
        return data.ranks_read_different_shards(evidence(*(reads(rows + [rows[n] for n in again]) for rows in own)))

    assert cause(judged(40)) == "shards-overlap"
    assert judged(60).status == "held", "a few samples may be equal"
    assert judged(40, 1).status == "held", "a rank gets a sample twice: they are drawn with replacement"


def test_samples_that_are_drawn_with_replacement() -> None:
    def judged(*own: list[int]) -> list[str]:
        ranks = [reads([f"row {n}" for n in indices], indices, iterable=False) for indices in own]
        laws = (data.ranks_read_different_shards, data.every_sample_is_used)
        return [law(evidence(*ranks)).status for law in laws]

    assert judged(list(range(32)), list(range(20, 52)))[0] == "broken"
    twice = [[n // 2 for n in range(begin, begin + 32)] for begin in (0, 20)]
    assert judged(*twice) == ["held", "held"]


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
    assert judge(scheduled(list(range(8)), why="enough")).status == "held", "the run was not watched to its end"
    assert judge(scheduled(list(range(8)), mentions=["break"])).status == "held", "training may have ended early"
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
        assert (silent.status, silent.observation) == ("held", "")


def test_a_schedule_that_counts_ranks() -> None:
    fast = (8.0, 7.0, 6.0, 5.0, 4.0, 3.0, *[2.0] * 6)
    assert cause(judged_rates(*fast, each=2)) == "schedule-counts-ranks"
    assert cause(judged_rates(0.4, 0.3, 0.2, *[0.0] * 5, each=2, why="enough")) == "schedule-counts-ranks"
    assert judged_rates(*fast).status == "held", "it advances once in each step, and ends early as it is meant to"
    assert judged_rates(*fast[:6], 2.0, 1.0, 0.5, 0.4, 0.3, 0.2, each=2).status == "held", "it falls until the end"
    assert judged_rates(8.0, *[2.0] * 11, each=2).status == "held", "it ends elsewhere"
    assert judged_rates(*fast, each=2, why="enough").status == "held", "the run was not watched to its end"


def test_a_later_step_whose_gradients_are_not_synchronised_is_not_compared() -> None:
    """The last window of an epoch ends inside no_sync: the law of synchronised gradients says so."""
    ranks = [[state(0, **{"0.0": "p"}), backward(), step(), step(1, grads=[value])] for value in "ab"]
    off = compared(step=1, factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF)
    judged = gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(compared(), off)))
    assert judged.status == "held"
    assert "step 1 not judged" in judged.observation


def test_gradients_behind_a_communication_hook() -> None:
    def judged(name: str, **changes: Any) -> LawVerdict:
        hook = {"kind": "comm_hook", "name": name, "line": "train.py:4"}
        ranks = [[hook, state(0, **{"0.0": "p"}), backward(), step()] for _ in range(2)]
        return gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(compared(**changes),)))

    assert "float16" in judged("fp16_compress_hook").observation
    changed: dict[str, Any] = {"factor_one_off": 50.0, "v_off": OFF, "off_one": OFF}
    assert judged("powerSGD_hook", **changed).status == "not judged"
    assert judged("powerSGD_hook", **changed, w_off=9.0, w=((0.3, 0.7),)).status == "not judged"
    assert cause(judged("powerSGD_hook", **changed, w=((0.3, 0.7),))) == "loss-normalised-per-rank"


def test_a_factor_is_seen_before_a_hook_begins_to_compress() -> None:
    hook = {"kind": "comm_hook", "name": "powerSGD_hook", "line": "train.py:4"}
    ranks = [[hook, state(0, **{"0.0": "p"}), backward(), step(), step(1)] for _ in range(2)]
    twice = compared(factor_one=2.0, off_one=OFF, w=((0.25, 0.25),))
    compressed = compared(step=1, factor_one=1.7, factor_one_off=80.0, off_one=OFF, v_off=OFF)
    judge = gradients.gradients_equal_those_of_one_process
    assert cause(judge(evidence(*ranks, compared=(twice, compressed)))) == "gradients-scaled"
    assert judge(evidence(*ranks, compared=(compared(), compressed))).status == "not judged"


def test_equal_gradients_that_are_clipped_by_different_norms() -> None:
    def clipped(*norms: float) -> LawVerdict:
        clips = [
            {"kind": "clip", "step": 0, "number": 1, "digests": ["a"], "norm": norm, "line": "train.py:8"}
            for norm in norms
        ]
        return gradients.clipping_comes_last(evidence(*([clip, step()] for clip in clips)))

    assert clipped(2.0, 2.0000001).status == "held"
    assert cause(clipped(2.0, 1.4)) == "clip-by-own-part"


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


def draw(digest: str, shape: list[int], line: str = "train.py:6") -> Event:
    return {
        "kind": "draw", "op": "bernoulli_", "key": f"bernoulli_ {line} 0", "step": 0, "digest": digest, "shape": shape,
        "line": line, "integer": False, "training": True, "backwards": 0,
    }  # fmt: skip


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


def trained(**changes: Any) -> Evidence:
    """Three steps on two ranks with different batches. changes: of a step's fields, by name: by rank, by step."""
    ranks: list[list[Event]] = []
    for rank in range(2):
        events: list[Event] = []
        for number in range(3):
            own = {name: value[rank][number] for name, value in changes.items() if name != "loss"}
            events.append(
                {"kind": "batch", "step": number, "digest": f"{rank}{number}", "grad": True, "line": "train.py:6"}
            )
            loss = changes["loss"][rank][number] if "loss" in changes else float(number)
            events.append(backward(step=number, loss=loss))
            fields = {"local": [f"{rank}{number}"], "patterns": [""], "clipped": False, "called": True, "reached": True}
            events.append(step(number, **{**fields, "grads": [f"{number}"], **own}))
        ranks.append(events)
    return evidence(*ranks)


def test_gradients_that_do_not_depend_on_the_data() -> None:
    judge = gradients.gradients_depend_on_the_data
    assert judge(trained()).status == "held"
    stale = [[["a"]] * 3] * 2
    assert cause(judge(trained(grads=stale))) == "reduced-gradients-stale"
    assert judge(trained(grads=stale, clipped=[[True] * 3] * 2)).status == "held", (
        "clipping by value gives one magnitude"
    )
    assert judge(trained(grads=stale, patterns=[[["even"]] * 3] * 2)).status == "held", "signs say nothing"
    one_loss = [[0.5] * 3] * 2
    assert cause(judge(trained(grads=stale, local=stale, loss=one_loss))) == "gradients-constant"
    assert judge(trained(grads=stale, local=stale)).status == "held", (
        "the loss is linear: it changes, its gradient does not"
    )
    still = [[[{"lr": 0.0}]] * 3] * 2
    assert judge(trained(grads=stale, local=stale, loss=one_loss, groups=still)).status == "held"
    alike = [[["0"], ["1"], ["2"]]] * 2
    assert judge(trained(local=alike)).status == "held", "the model's inputs may be constant"
    assert cause(judge(trained(local=alike, reached=[[False] * 3] * 2))) == "gradients-constant"
    assert judge(trained(local=alike, reached=[[False] * 3] * 2, called=[[False] * 3] * 2)).status == "held"


def test_units_that_are_copies() -> None:
    judge = constant_gradients.units_are_not_copies
    assert judge(trained()).status == "held"
    assert cause(judge(trained(patterns=[[["rows"]] * 3] * 2))) == "units-stay-alike"
    assert judge(trained(patterns=[[["rows"], ["rows"], [""]]] * 2)).status == "held"
    assert judge(evidence([step()], [step()])).status == "not judged"


def test_gradients_that_only_some_ranks_looked_at_are_not_compared() -> None:
    """One rank has digests and the other none: that is no difference."""
    looked, not_looked = step(1, looked=True, grads=["b"]), step(1, looked=False, grads=[])
    start = [state(0, **{"0.0": "p"}), step()]
    seen = evidence([*start, looked], [*start, not_looked])
    assert gradients.gradients_are_synchronised(seen).note == "equal in all bits in 1 step"
    other = evidence([*start, looked], [*start, step(1, looked=True, grads=["c"])])
    assert gradients.gradients_are_synchronised(other).status == "broken"
    clips: list[list[Event]] = [
        [{"kind": "clip", "step": 1, "number": 1, "digests": each, "norm": 1.0, "line": "train.py:8"}]
        for each in (["b"], None)
    ]
    apart = evidence(*([*start, *clip, own] for clip, own in zip(clips, (looked, not_looked), strict=True)))
    assert gradients.clipping_comes_last(apart).status == "held"


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


def test_drift_is_told_with_the_last_step_in_which_parameters_are_equal() -> None:
    own = [state(0, **{"0.0": "p"}), step(), state(6, **{"0.0": "q"}), state(12, **{"0.0": "r"})]
    other = [*own[:3], state(12, **{"0.0": "s"})]
    headline = replicas.replicas_stay_equal(evidence(own, other)).headline
    assert "1 parameter differs in step 12" in headline
    assert "in step 6 they are equal" in headline


def test_split_parameters_that_are_put_together_are_judged() -> None:
    split = [
        {"kind": "sharded", "optimizer": 0, "line": "train.py:4"},
        {"kind": "gathered", "count": 1, "line": "train.py:7"},
    ]
    ranks = [[*split, state(0, **{"0.0": "p"}), step(), state(1), step(1, grads=[""])] for _ in range(2)]
    seen = evidence(*ranks)
    assert replicas.ranks_start_from_the_same_parameters(seen).status == "held"
    assert gradients.gradients_are_synchronised(seen).note == "equal in all bits in 1 step"
    assert replicas.replicas_stay_equal(seen).note == "equal in all bits in 1 step, last in step 0"


def call(op: str, line: str, **changes: Any) -> Event:
    made: Event = {
        "kind": "collective", "op": op, "step": 0, "number": 0, "point": False, "group": 2, "line": line, "shape": [1],
        "dtype": "float32", "reduce": "SUM", "grad": True, "values": None, "loses_gradient": False,
    }  # fmt: skip
    return {**made, **changes}


LEFT: Event = {"kind": "left", "op": "all_reduce", "values": None}


def test_collectives() -> None:
    judge = world.ranks_call_the_same_collectives
    same = [call("all_reduce", "train.py:4"), LEFT, call("barrier", "train.py:9")]
    assert judge(evidence(same, same)).status == "held"
    extra = [call("all_reduce", "train.py:4"), LEFT, call("all_reduce", "train.py:7"), call("barrier", "train.py:9")]
    found = judge(evidence(extra, same))
    assert cause(found) == "collective-in-rank-dependent-branch"
    assert found.causes[0].get("line") == "train.py:7"
    assert found.causes[0].get("ranks") == (0,)


def test_a_call_in_a_helper_is_told_with_its_callers_line() -> None:
    judge = world.ranks_call_the_same_collectives
    mean, start = "train.py:4", "train.py:30"
    same = [call("all_reduce", mean, callers=["train.py:20", start])]
    extra = [*same, call("all_reduce", mean, callers=["train.py:22", start]), call("barrier", "train.py:9")]
    found = judge(evidence(extra, [*same, call("barrier", "train.py:9")]))
    assert found.causes[0].get("line") == "train.py:22 (through train.py:4)"
    assert found.causes[0].get("ranks") == (0,)


def test_a_call_of_one_rank_is_told_though_it_was_paired_with_a_later_call_of_the_others() -> None:
    mean = "train.py:4"
    alone, common = (call("all_reduce", mean, callers=[line, "train.py:30"]) for line in ("train.py:22", "train.py:25"))
    found = world.ranks_call_the_same_collectives(evidence([alone, common], [common, call("barrier", "train.py:9")]))
    assert found.causes[0].get("line") == "train.py:22 (through train.py:4)"
    assert "call 0 differs" in found.headline
    assert "rank 1: all_reduce at train.py:25 (through train.py:4)" in found.headline


def test_a_hang_in_a_helper_is_told_where_the_stacks_part() -> None:
    def stack(*lines: int) -> str:
        return "\n".join(f'  File "/home/me/train.py", line {line} in f' for line in lines)

    def waiting(*stacks: str, events: tuple[Event, ...] = ()) -> tuple[str, ...]:
        real = RunSeen(((), events), stacks, hung=True)
        judged = world.ranks_end_without_error(Evidence(("train.py",), 2, 6, 400, real))
        lines = judged.causes[0].get("lines")
        assert isinstance(lines, tuple)
        return tuple(map(str, lines))

    both = ("train.py:22 (through train.py:4)", "train.py:25 (through train.py:4)")
    assert waiting(stack(4, 22, 30), stack(4, 25, 30)) == both
    assert waiting(stack(4, 22, 30), stack(4, 22, 30)) == ("train.py:4", "train.py:4")
    ended: Event = {"kind": "end", "why": "finished"}
    earlier = call("all_reduce", "train.py:4", callers=["train.py:20", "train.py:30"])
    assert waiting(stack(4, 22, 30), "", events=(earlier, ended)) == both[:1]


def test_hang_names_ranks_and_operations() -> None:
    frames = ('File "/x/site-packages/torch/a.py", line 3 in wait', 'File "/home/me/train.py", line 12 in main')
    stack = "\n  ".join(("Thread 0x1 (most recent call first):", *frames))
    real = RunSeen(((), ({"kind": "end", "why": "finished"},)), (stack, ""), hung=True)
    judged = world.ranks_end_without_error(Evidence(("train.py",), 2, 6, 400, real))
    assert cause(judged) == "ranks-wait-for-each-other"
    assert judged.causes[0].get("lines") == ("train.py:12",)


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


def test_weights_by_least_squares() -> None:
    g = np.random.default_rng(0)
    terms = [{"a": g.normal(size=20), "b": g.normal(size=3)} for _ in range(3)]
    target = {name: 0.2 * terms[0][name] + 0.3 * terms[1][name] + 0.5 * terms[2][name] for name in ("a", "b")}
    fit = gradient_weights.fit(target, terms)
    assert fit.weights == pytest.approx((0.2, 0.3, 0.5))
    assert max(fit.off.values()) < 1e-12
    target["b"] = target["b"] + 1.0
    assert gradient_weights.fit(target, terms).off["b"] > 0.5


def test_tolerances_come_from_the_noise() -> None:
    whole = {name: np.ones(4) for name in "abc"}
    tolerance, _ = gradient_weights.tolerances(whole, {**whole, "a": np.ones(4) * (1 + 1e-6)}, [whole])
    assert tolerance["a"] > gradient_weights.NOISE * 1.9e-6 > tolerance["b"]
    _, noise = gradient_weights.tolerances(whole, {name: np.zeros(4) for name in "abc"}, [whole])
    assert gradient_weights.order_matters(whole, {name: np.zeros(4) for name in "abc"})
    assert not gradient_weights.order_matters(whole, {name: np.ones(4) * (1 + 1e-6) for name in "abc"})
    assert noise == 0.0, "a loss that depends on the order of samples shows no rounding"


def test_nonfinite_values_match_no_hypothesis() -> None:
    made = gradient_weights.fit({"w": np.array([np.nan, 1.0])}, [{"w": np.ones(2)}])
    assert made.weights == (0.0,)
    assert made.off == {"w": float("inf")}


def test_a_loader_that_reads_ahead_ends_before_its_last_window_is_stepped() -> None:
    window = [backward(0, root="DivBackward0"), backward(0, root="DivBackward0"), step(0)]
    end: Event = {
        "kind": "epoch_end", "key": "a", "loader": 0, "passed": 0, "batches": 4, "cut": False, "step": 1, "pending": 1,
        "trained": True, "line": "train.py:5",
    }  # fmt: skip
    last = [backward(1, root="DivBackward0"), step(1)]
    assert accumulation.windows_are_stepped(evidence([*window, end, *last])).status == "held"
    assert accumulation.windows_are_stepped(evidence([*window, end])).status == "broken"
