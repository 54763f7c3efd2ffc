"""Laws of an audit on gradients: synchronised, of the data, clipped at last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from audit_evidence import WRAPPED, Event, backward, call, cause, evidence, state, step

from ddpcheck.audit.evidence import Evidence, RunSeen
from ddpcheck.audit.laws import (
    constant_gradients,
    gradients,
    waiting,
)
from ddpcheck.audit.laws.law import LawVerdict
from ddpcheck.audit.laws.overwritten_values import own_values_overwritten
from ddpcheck.audit.verdicts import verdicts_of
from ddpcheck.causes import Cause


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


def test_ranks_that_step_after_different_backward_passes() -> None:
    """As by `if loss < limit: optimizer.step()`. Gradients of different batches are compared then."""
    ranks = [[WRAPPED, *[backward(n) for n in range(count)], step(grads=[f"{count}"])] for count in (3, 2)]
    assert cause(gradients.gradients_are_synchronised(evidence(*ranks))) == "ranks-step-apart"
    failed = [verdict.check for verdict in verdicts_of(evidence(*ranks)) if verdict.status == "failed"]
    assert failed[0] == "ranks_step_together"
    assert "gradients_are_synchronised" not in failed, "they follow from it"
    equal = [[WRAPPED, *[backward(n) for n in range(count)], step(grads=["a"])] for count in (3, 2)]
    assert gradients.gradients_are_synchronised(evidence(*equal)).status == "held"


@pytest.mark.parametrize(
    ("covered", "found"),
    [
        (["none", "none"], "module-not-wrapped"),
        (["synchronised", "none"], "parameter-outside-wrapper"),
        (["synchronised", "added"], "parameter-added-after-wrapping"),
    ],
)
def test_trained_parameters_that_no_wrapper_synchronises(covered: list[str], found: str) -> None:
    group = {"kind": "group", "optimizer": 0, "line": "train.py:4"}
    ranks = [[WRAPPED, group, backward(), step(grads=["g", value], covered=covered)] for value in "ab"]
    assert cause(gradients.gradients_are_synchronised(evidence(*ranks))) == found


@pytest.mark.parametrize(
    ("entered", "sync", "found"),
    [
        ([], [True], "synchronised-too-late"),
        ([], [False], "last-micro-batch-not-synchronised"),
        ([{"kind": "no_sync", "step": 0, "number": 0}], [True], "last-micro-batch-not-synchronised"),
    ],
)
def test_a_forward_that_is_not_to_synchronise(entered: list[Event], sync: list[bool], found: str) -> None:
    """DDP reads its flag in the forward. What is set after it counts for the next backward."""
    forward = {"kind": "forward", "step": 0, "number": 0, "sync": False, "grad": True, "line": "train.py:5"}
    ranks = [[WRAPPED, *entered, forward, backward(sync=sync), step(grads=[value])] for value in "ab"]
    assert cause(gradients.gradients_are_synchronised(evidence(*ranks))) == found


def test_only_the_last_forward_goes_around_the_wrapper() -> None:
    forward = {"kind": "forward", "step": 0, "number": 0, "sync": False, "grad": True, "line": "train.py:5"}
    entered = {"kind": "no_sync", "step": 0, "number": 0}
    passes = [entered, forward, backward(sync=[False]), backward(number=1, sync=[True])]
    ranks = [[WRAPPED, *passes, step(grads=[value])] for value in "ab"]
    assert cause(gradients.gradients_are_synchronised(evidence(*ranks))) == "forward-bypasses-wrapper"


def test_a_reduction_that_does_not_reach_the_gradients() -> None:
    def told(shape: list[int], *grads: str) -> str:
        module = {"kind": "module", "grad": True, "parameters": 12}
        reduced = call("all_reduce", "train.py:7", number=1, shape=shape)
        ranks = [[module, backward(), reduced, step(grads=["a", each])] for each in grads]
        ranks[0][-1]["grads"][0] = "b" if len(set(grads)) > 1 and grads[0] != "one" else "a"
        judged = gradients.gradients_are_synchronised(evidence(*ranks))
        assert cause(judged) == "parameter-not-synchronised"
        return judged.causes[0].because

    assert "do not reach" in told([12], "c", "d")
    assert "leave it out" in told([8], "c", "d")
    assert "leave it out" in told([12], "one", "d"), "the other parameter is synchronised"


@pytest.mark.parametrize(
    ("op", "size", "optimizer", "after", "clips", "found"),
    [
        ("all_reduce", 12, "SGD", "q", False, "held"),
        ("all_reduce", 12, "SGD", "q", True, "parameters-averaged-after-step"),
        ("all_reduce", 12, "Adam", "q", False, "parameters-averaged-after-step"),
        ("broadcast", 12, "SGD", "q", False, "parameters-of-one-rank"),
        ("all_reduce", 2, "SGD", "q", False, "parameter-not-synchronised"),
        ("all_reduce", 12, "SGD", "", False, "parameter-not-synchronised"),
    ],
)
def test_parameters_that_are_made_equal_after_a_step(
    op: str, size: int, optimizer: str, after: str, clips: bool, found: str
) -> None:
    ranks: list[list[Event]] = []
    for rank in "ab":
        module = {"kind": "module", "grad": True, "parameters": 12}
        clip: list[Event] = [{"kind": "clip", "step": 0, "number": 1, "digests": [rank], "norm": 1.0, "line": "a.py:6"}]
        first = [module, state(0, **{"0.0": "p"}), backward(), *clip * clips, step(grads=[rank], name=optimizer)]
        made_equal = call(op, "train.py:7", step=1, shape=[size])
        then = [made_equal, state(1, **{"0.0": after or rank}), step(1, name=optimizer, grads=[rank])]
        ranks.append([*first, *then])
    judged = gradients.gradients_are_synchronised(evidence(*ranks))
    assert (judged.causes[0].id if judged.causes else judged.status) == found
    assert ("averaged after each step" in judged.observation) == (found == "held")


def test_gradients_that_the_optimizer_does_not_get() -> None:
    def judged(**changes: Any) -> LawVerdict:
        ranks = [[backward(), step(zero=True, **changes)] for _ in range(2)]
        return gradients.gradients_depend_on_the_data(evidence(*ranks))

    assert cause(judged(grads=["", ""], parts=[4, 4])) == "gradients-lost-before-step"
    assert cause(judged(grads=["", ""], parts=[0, 0])) == "gradients-all-zero", "no backward computed any"
    assert cause(judged(grads=["z", "z"], parts=[4, 4])) == "gradients-all-zero"


def test_gradients_that_are_changed_after_their_reduction() -> None:
    def judged(*reduced: int | None) -> str:
        ranks = [
            [
                WRAPPED,
                {"kind": "forward", "step": 0, "grad": True, "sync": True},
                backward(),
                step(grads=[n], reduced=[each]),
            ]
            for n, each in zip("ab", reduced, strict=True)
        ]
        return cause(gradients.gradients_are_synchronised(evidence(*ranks)))

    assert judged(7, 7) == "gradient-changed-after-reduction"
    assert judged(7, 8) == judged(None, None) == "parameter-not-synchronised"


@pytest.mark.parametrize(
    ("needs", "looks_for_unused", "found", "how"),
    [
        (False, False, "wrapper-waits-for-parameter", "frozen after the wrapper was made"),
        (True, False, "wrapper-waits-for-parameter", "on some ranks only, or on none"),
        (False, True, "parameter-not-synchronised", ""),
    ],
)
def test_a_wrapper_waits_for_a_gradient(needs: bool, looks_for_unused: bool, found: str, how: str) -> None:
    ranks = [
        [
            {**WRAPPED, "find_unused_parameters": looks_for_unused},
            {"kind": "forward", "step": 0, "grad": True, "sync": True},
            backward(),
            step(grads=["", own], needs=[needs, True], covered=["synchronised"] * 2, parts=[0, 1]),
        ]
        for own in "ab"
    ]
    judged = gradients.gradients_are_synchronised(evidence(*ranks))
    assert cause(judged) == found
    assert how in judged.causes[0].because


@pytest.mark.parametrize(
    ("sparse", "found"), [([0], "sparse-gradient-without-indices"), ([], "parameter-not-synchronised")]
)
def test_a_sparse_gradient_of_the_second_optimizer(sparse: list[int], found: str) -> None:
    """Both optimizers step after one backward, so that the collectives are those of the step before."""
    reduced = call("all_reduce", "train.py:7", number=1, shape=[8])
    ranks = [
        [backward(), reduced, step(grads=["d"]), step(1, optimizer=1, grads=[each], sparse=sparse)] for each in "ab"
    ]
    judged = gradients.gradients_are_synchronised(evidence(*ranks))
    assert cause(judged) == found
    assert "train.py:7" in judged.causes[0].headline + judged.causes[0].because


def test_equal_gradients_that_are_clipped_by_different_norms() -> None:
    def clipped(*norms: float) -> LawVerdict:
        clips = [
            {"kind": "clip", "step": 0, "number": 1, "digests": ["a"], "norm": norm, "line": "train.py:8"}
            for norm in norms
        ]
        return gradients.clipping_comes_last(evidence(*([clip, step()] for clip in clips)))

    assert clipped(2.0, 2.0000001).status == "held"
    assert clipped(float("inf"), float("inf")).status == "held", "a loss scale may overflow"
    assert cause(clipped(2.0, 1.4)) == "clip-by-own-part"


def test_ranks_that_clip_the_parameters_of_their_own_optimizers() -> None:
    def clipped(*digests: list[str]) -> str:
        ranks = []
        for own, name in zip(digests, "ab", strict=True):
            names = {"kind": "names", "names": {"0.0": name}}
            clip = {"kind": "clip", "step": 0, "number": 1, "digests": own, "norm": 2.0, "line": "train.py:8"}
            group = {"kind": "group", "optimizer": 0, "line": "train.py:4"}
            ranks.append([names, group, clip, step(grads=own[:1])])
        judged = gradients.clipping_comes_last(evidence(*ranks))
        return cause(judged) if judged.causes else judged.status

    assert clipped(["x"], ["y"]) == "clip-by-own-part"
    assert clipped(["x", "y"], ["x", "y"]) == "held"
    assert clipped(["x", "y"], ["v", "w"]) != "clip-by-own-part", "each rank clips all parameters"


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


def test_collectives_in_flight() -> None:
    def in_flight(how: str, number: int = 1) -> Event:
        lines = {"start": "train.py:6", "line": "train.py:7"}
        return {"kind": "in_flight", "how": how, "op": "all_reduce", "step": 0, "number": number, **lines}

    def judged(*events: Event) -> LawVerdict:
        return waiting.collectives_are_awaited(evidence([], [*events, step()]))

    assert judged().status == "not judged"
    started = {"kind": "left", "op": "all_reduce", "asynchronous": True}
    assert waiting.collectives_are_awaited(evidence([started, step()], [step()])).status == "held"
    assert cause(judged(in_flight("unawaited"))) == "handle-not-awaited"
    assert cause(judged(in_flight("changed"))) == "tensor-changed-in-flight"

    different = evidence([in_flight("changed"), step(grads=["a"])], [step(grads=["b"])])
    assert gradients.gradients_are_synchronised(different).status == "not judged"
    of_a_metric = evidence([in_flight("changed", number=0), step(grads=["a"])], [step(grads=["b"])])
    assert gradients.gradients_are_synchronised(of_a_metric).status == "broken"


def test_a_broadcast_of_what_ranks_computed() -> None:
    def judged(*, digests: tuple[str, str] = ("a", "b"), rows_of_one: int = 8) -> Cause | None:
        sent = ([call("broadcast", "train.py:5", shape=[4, 2], digest=each, root=0)] for each in digests)
        one = RunSeen(((call("broadcast", "train.py:5", shape=[rows_of_one, 2]),),), ("",))
        return own_values_overwritten(replace(evidence(*sent), mirrors={"one": one}), 1)

    found = judged()
    assert found is not None
    assert found.id == "own-values-overwritten"
    assert judged(digests=("a", "a")) is None
    assert judged(rows_of_one=4) is None, "not of samples, such as a draw for all ranks"
