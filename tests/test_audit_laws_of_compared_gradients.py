"""Laws of an audit on gradients beside those of one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from audit_evidence import LOADED, OFF, WRAPPED, Event, backward, call, cause, compared, evidence, state, step

from ddpcheck.audit import gradient_weights
from ddpcheck.audit.evidence import Evidence, RunSeen, StepSeen
from ddpcheck.audit.laws import (
    gradients,
)
from ddpcheck.audit.laws.law import LawVerdict


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (compared(), "held"),
        (compared(v=(1.0, 1.0), factor_one=2.0, off_one=OFF), "gradients-summed"),
        (compared(factor_one=2.0, off_one=OFF), "gradients-scaled"),
        (compared(factor_one=0.5, w=((1.0, 1.0),), off_one=OFF), "held"),
        (compared(v=(0.25, 0.25), factor_one=0.5, off_one=OFF), "gradients-divided-twice"),
        (compared(factor_one=1.1, factor_one_off=50.0, w=((0.3, 0.7),), off_one=OFF), "loss-normalised-per-rank"),
        (compared(factor_one=1.1, factor_one_off=50.0, w=((1.0, 0.0),), off_one=OFF), "not judged"),
        (compared(factor_one_off=50.0, v=(1.0, 0.0), off_one=OFF), "ranks-weighted-wrongly"),
        (compared(factor_one_off=50.0, v=(1.0, 0.0), w_off=30.0, off_one=OFF), "loss-couples-samples"),
        (
            compared(factor_one_off=50.0, v_off=OFF, off_one=OFF, micro_batches=(2.0, 1.0)),
            "micro-batches-weighted-apart",
        ),
        (compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF), "loss-couples-samples"),
        (compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF, order_matters=True), "not judged"),
        (compared(factor_one_off=50.0, v_off=OFF, off_one=OFF), "reduction-is-no-combination"),
        (compared(not_comparable="random results do not fit together"), "not judged"),
    ],
)
def test_gradients_against_one_process(seen: StepSeen, found: str) -> None:
    """A table of answers of both mirrors, with the expected cause."""
    ranks = [[LOADED, state(0, **{"0.0": "p"}), backward(), step()] for _ in range(2)]
    judged = gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(seen,)))
    assert (judged.causes[0].id if judged.causes else judged.status) == found


def lossy(
    whole: float, own: float = 1.0, *, scale: float = 1.0, reduces: bool = False, factor_all: float = 0.0
) -> Evidence:
    """Gradients are half of one process's, whose loss is `whole`, and `factor_all` of two identical ranks'. The ranks' loss is
    `own`, times `scale`.
    """
    reduced = {"kind": "collective", "op": "all_reduce", "step": 0, "loses_gradient": reduces, "line": "train.py:7"}
    calls = [state(0, **{"0.0": "p"}), reduced, backward(loss=own, scale=scale, root="Fused"), step()]
    alone = RunSeen(((backward(loss=whole, root="Fused"), step()),))
    half = compared(factor_one=0.5, factor_all=factor_all, w=((1.0, 1.0),), off_one=OFF)
    return replace(evidence(calls, calls, compared=(half,)), mirrors={"one": alone})


def test_a_gradient_lost_in_the_loss_is_no_sum_over_samples() -> None:
    judge = gradients.gradients_equal_those_of_one_process
    assert judge(lossy(2.0)).status == "held"
    assert cause(judge(lossy(1.0))) == "gradient-smaller-than-loss"
    assert cause(judge(lossy(1.0, factor_all=1.0))) == "gradient-smaller-than-loss"
    assert cause(judge(lossy(2.0, factor_all=1.0))) == "loss-divided-twice"
    assert cause(judge(lossy(1.0, scale=2.0))) == "loss-factor-ignored"
    assert cause(judge(lossy(1.0, reduces=True))) == "reduced-without-gradient"
    assert judge(lossy(float("nan"), float("nan"))).status == "held"


def test_a_loss_that_is_averaged_before_backward() -> None:
    """all_reduce changes the loss in place: every rank's loss is the mean, and the gradient is 1/N."""

    def judged(*losses: float, reduced: float = 2.0) -> LawVerdict:
        ranks = []
        for loss, value in zip(losses, (1.0, 2 * reduced - 1.0), strict=True):
            one = call("all_reduce", "train.py:7", values=[value], shape=[])
            ranks.append([state(0, **{"0.0": "p"}), one, backward(loss=loss), step()])
        half = compared(factor_one=0.5, w=((1.0, 1.0),), off_one=OFF)
        alone = RunSeen(((backward(loss=2.0), step()),))
        seen = replace(evidence(*ranks, compared=(half,)), mirrors={"one": alone})
        return gradients.gradients_equal_those_of_one_process(seen)

    assert cause(judged(2.0, 2.0)) == "loss-averaged-before-backward"
    assert cause(judged(1.0, 3.0)) == "gradient-smaller-than-loss", "a copy is averaged, for a log"
    assert cause(judged(2.0, 2.0, reduced=5.0)) == "gradient-smaller-than-loss"


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
    ("collectives", "found"), [(0, "gradients-multiplied-after-averaging"), (1, "gradients-summed")]
)
def test_a_sum_behind_a_wrapper_is_a_product(collectives: int, found: str) -> None:
    """The wrapper averages; a sum that a collective of the script makes is told as one."""
    reduced = [call("all_reduce", "train.py:7", number=1)] * collectives
    ranks = [[LOADED, state(0, **{"0.0": "p"}), WRAPPED, backward(), *reduced, step()] for _ in range(2)]
    seen = compared(v=(1.0, 1.0), factor_one=2.0, off_one=OFF)
    assert cause(gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(seen,)))) == found


@pytest.mark.parametrize(
    ("firsts", "columns", "gathered", "found"),
    [
        ((0, 0), 64, [32], "targets-not-shifted-by-rank"),
        ((0, 32), 64, [32], "loss-couples-samples"),
        ((0, 0), 32, [], "loss-couples-samples"),
        ((0, 32), 128, [64], "targets-shifted-by-other-rows"),
        ((0, 64), 128, [64], "loss-couples-samples"),
        ((0, 32), 128, [32, 32], "loss-couples-samples"),
    ],
)
def test_targets_of_gathered_features(firsts: tuple[int, ...], columns: int, gathered: list[int], found: str) -> None:
    def positions(first: int) -> Event:
        shape = {"rows": 32, "columns": columns}
        return {"kind": "positions", "step": 0, **shape, "first": first, "line": "train.py:6"}

    gathers = [call("all_gather", "train.py:5", shape=[rows, 8]) for rows in gathered]
    ranks = [[LOADED, state(0, **{"0.0": "p"}), *gathers, positions(first), backward(), step()] for first in firsts]
    off = compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF)
    assert cause(gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(off,)))) == found


@pytest.mark.parametrize(("places", "found"), [((0, 0), "own-features-misplaced"), ((0, 1), "loss-couples-samples")])
def test_own_features_among_gathered_ones(places: tuple[int, ...], found: str) -> None:
    own = [{"kind": "own_place", "step": 0, "place": place, "line": "train.py:6"} for place in places]
    ranks = [[LOADED, state(0, **{"0.0": "p"}), each, backward(), step()] for each in own]
    off = compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF)
    assert cause(gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(off,)))) == found


def test_a_value_that_each_rank_has_of_its_own() -> None:
    def judged(*digests: str, line: str = "train.py:7") -> LawVerdict:
        used = [
            {"kind": "constant", "step": 1, "digest": each, "shape": [4], "line": line if n else "train.py:7"}
            for n, each in enumerate(digests)
        ]
        ranks = [[LOADED, state(0, **{"0.0": "p"}), each, backward(), step()] for each in used]
        off = compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF)
        return gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(off,)))

    assert cause(judged("a", "b")) == "value-differs-between-ranks"
    assert cause(judged("a", "a")) == cause(judged("a", "b", line="train.py:9")) == "loss-couples-samples"


def test_batches_from_a_permutation_that_all_ranks_share_are_not_judged() -> None:
    def judged(*digests: str) -> str:
        draws = [{"kind": "draw", "step": 0, "integer": True, "digest": digest} for digest in digests]
        ranks = [[draw, state(0, **{"0.0": "p"}), backward(), step()] for draw in draws]
        off = compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF)
        return gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(off,))).status

    assert judged("a", "a") == "not judged"
    assert judged("a", "b") == "broken", "each rank draws indices of its own"


def test_a_value_that_each_rank_carries_from_step_to_step() -> None:
    def judged(*digests: str, at: int = 1) -> str:
        used = [
            {"kind": "carried", "step": at, "line": "train.py:7", "shape": [4], "digest": digest} for digest in digests
        ]
        ranks = [[LOADED, state(0, **{"0.0": "p"}), each, backward(), step(), step(1)] for each in used]
        off = compared(step=1, factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF)
        return cause(gradients.gradients_equal_those_of_one_process(evidence(*ranks, compared=(off,))))

    assert judged("a", "b") == "carried-value-of-each-rank"
    assert judged("a", "a") == judged("a", "b", at=2) == "loss-couples-samples", "it differs later than the gradients"


CE, PENALTY, LOSS = "train.py:5", "train.py:6", "train.py:7"


@pytest.mark.parametrize(
    ("penalty", "numbers", "whole", "number_of_one", "v", "found"),
    [
        ((0.1, 0.3), (1.0, 1.0), 0.4, 1.0, 0.5, "loss-term-divided-twice"),
        ((0.1, 0.3), (1.0, 1.0), 0.4, 1.0, 1.0, "loss-couples-samples"),
        ((0.1, 0.3), (4.0, 6.0), 0.17, 10.0, 0.5, "loss-term-normalised-per-rank"),
        ((0.1, 0.3), (4.0, 4.0), 0.1, 8.0, 0.5, "loss-term-scaled"),
        ((0.1, 0.3), (1.0, 1.0), 0.17, 1.0, 0.5, "loss-couples-samples"),
    ],
)
def test_the_term_of_a_loss_that_is_not_that_of_one_process(
    penalty: tuple[float, ...], numbers: tuple[float, ...], whole: float, number_of_one: float, v: float, found: str
) -> None:
    """The loss is a mean, and a penalty that a number divides. The ranks' means are 1 and 3, and one process's is 2."""

    def terms(mean: float, penalty: float, number: float) -> Event:
        values = [
            [CE, "mse_loss", mean, [], None],
            [PENALTY, "div", penalty, [], number],
            [LOSS, "add", mean + penalty, [0, 1], None],
        ]
        return {"kind": "terms", "step": 0, "number": 0, "loss": 2, "values": values, "numbers": []}

    own = [terms(mean, *each) for mean, each in zip((1.0, 3.0), zip(penalty, numbers, strict=True), strict=True)]
    ranks = [[LOADED, state(0, **{"0.0": "p"}), each, backward(), step()] for each in own]
    off = compared(v=(v, v), factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF)
    one = RunSeen(((terms(2.0, whole, number_of_one), backward(), step()),))
    seen = replace(evidence(*ranks, compared=(off,)), mirrors={"one": one})
    judged = gradients.gradients_equal_those_of_one_process(seen)
    assert cause(judged) == found
    assert v == 1.0 or PENALTY in judged.causes[0].headline + judged.causes[0].look


def test_a_number_of_each_rank_in_a_loss() -> None:
    def judged(*numbers: float) -> str:
        def terms(value: float, number: float) -> Event:
            values = [[LOSS, "mean", value, [], None]]
            return {
                "kind": "terms", "step": 0, "number": 0, "loss": 0, "values": values, "numbers": [[CE, "sub", number]],
            }  # fmt: skip

        ranks = [[LOADED, state(0, **{"0.0": "p"}), terms(1.0, each), backward(), step()] for each in numbers]
        off = compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF)
        one = RunSeen(((terms(1.1, 0.25), backward(), step()),))
        seen = replace(evidence(*ranks, compared=(off,)), mirrors={"one": one})
        return cause(gradients.gradients_equal_those_of_one_process(seen))

    assert judged(0.2, 0.3) == "number-of-each-rank"
    assert judged(0.2, 0.2) == "loss-couples-samples"


def test_a_statistic_that_is_not_the_one_of_the_whole_batch() -> None:
    def judged(got: list[float], *, autograd: bool = True, line: str = "train.py:7", size: str = "values") -> str:
        def reduced(numbers: list[float], line: str) -> list[Event]:
            one = {**call("all_reduce", line), "autograd": autograd}
            return [one, {"kind": "left", "op": "all_reduce", "values": None, size: numbers}]

        mean = reduced([1.0, 3.0], "train.py:6")
        ranks = [[LOADED, state(0, **{"0.0": "p"}), *mean, *reduced(got, line), backward(), step()] for _ in range(2)]
        alone = RunSeen(((*reduced([0.5, 1.5], "train.py:6"), *reduced([2.0, 4.0], line), backward(), step()),))
        off = compared(factor_one=1.1, factor_one_off=50.0, w_off=30.0, off_one=OFF)
        seen = replace(evidence(*ranks, compared=(off,)), mirrors={"one": alone})
        return cause(gradients.gradients_equal_those_of_one_process(seen))

    assert judged([3.0, 6.5]) == judged([3.0, 6.5], size="sample") == "statistic-not-of-whole-batch"
    assert judged([4.0, 8.0]) == judged([2.0, 4.0]) == "loss-couples-samples", "a sum of means, and a sum of sums"
    assert judged([3.0, 6.5], autograd=False) == "loss-couples-samples", "a value for the log"
    assert judged([3.0, 6.5], line="train.py:8") == "loss-couples-samples", "it is reduced in the backward pass"


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
