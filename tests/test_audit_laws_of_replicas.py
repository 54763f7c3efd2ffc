"""Laws of an audit on models, buffers and optimizers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from audit_evidence import LOADED, OFF, WRAPPED, Event, backward, call, cause, compared, evidence, state, step

from ddpcheck.audit.conditions import Block, Condition, Source
from ddpcheck.audit.evidence import Evidence, RunSeen
from ddpcheck.audit.laws import (
    gradients,
    replicas,
)
from ddpcheck.audit.laws.law import LawVerdict


@pytest.mark.parametrize(
    ("of_one", "of_noise", "told"),
    [({"b0.mean": 2.0}, {"b0.mean": 2.0}, True), ({"b0.mean": 2.0}, {"b0.mean": 3.0}, False), ({}, {}, False)],
    ids=["from-the-data", "random", "equal"],
)
def test_initial_values_of_one_ranks_data_are_noted(
    of_one: dict[str, float], of_noise: dict[str, float], told: bool
) -> None:
    ranks = [[state(0, **{"0.0": "p", "b0.mean": "m"})]] * 2
    mirrors = {
        name: RunSeen(((({"kind": "initial", "norms": norms}),),), ("",))
        for name, norms in (("one", of_one), ("noise", of_noise))
    }
    judged = replicas.ranks_start_from_the_same_parameters(replace(evidence(*ranks), mirrors=mirrors))
    assert judged.status == "held"
    assert ("first mean" in judged.observation) == told


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


def test_a_buffer_that_the_forward_pass_uses_and_a_wrapper_overwrites() -> None:
    def judged(used: str, *digests: str) -> LawVerdict:
        use = {"kind": "used_buffer", "buffer": used, "step": 0, "line": "train.py:5"}
        forward = {"kind": "forward", "line": "train.py:7"}
        ranks = [[WRAPPED, forward, use, state(1, **{"b0.count": each, "b0.queue": each})] for each in digests]
        return replicas.buffers_are_equal(evidence(*ranks))

    found = judged("queue", "a", "b")
    assert cause(found) == "buffer-of-one-rank"
    assert found.causes[0].get("buffer") == "queue"
    assert judged("queue", "a", "a").status == "held"
    assert "count" in judged("other", "a", "b").observation


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


def write(number: int, line: str, caller: str) -> Event:
    return {"kind": "write", "number": number, "step": 0, "line": line, "callers": [caller]}


COPY = write(1, "train.py:7", "train.py:20")


@pytest.mark.parametrize(
    ("own", "others", "found"),
    [
        ([write(0, "train.py:3", "train.py:12")], [], ((0,), "train.py:12 (through train.py:3)")),
        ([COPY, write(0, "train.py:3", "train.py:12")], [COPY], ((0,), "train.py:12 (through train.py:3)")),
        ([write(0, "train.py:3", "train.py:12")], [write(0, "train.py:3", "train.py:12")], None),
        ([write(0, "train.py:3", "train.py:12")], [write(0, "train.py:3", "train.py:14")], None),
        ([], [], None),
    ],
    ids=["by one rank", "after a copy on all ranks", "by all ranks", "by each rank at a line of its own", "not seen"],
)
def test_the_line_at_which_one_rank_updates_a_teacher(
    own: list[Event], others: list[Event], found: tuple[tuple[int, ...], str] | None
) -> None:
    ranks: list[list[Event]] = []
    for writes, digests in ((own, "ab"), (others, "aa")):
        updated = {**step(line="train.py:10"), "callers": []}
        named = {"kind": "written", "step": 1, "names": {"m0.weight": [event["number"] for event in writes]}}
        states = [state(n + 1, **{"m0.weight": value}) for n, value in enumerate(digests)]
        ranks.append([module(), updated, *writes, *([named] if writes else []), *states])
    source = Source(((2, 4), (6, 14)), (Condition(11, "if rank == 0", False, 6, (Block(12, 12, False, False),)),))
    judged = replicas.evaluated_models_are_equal(replace(evidence(*ranks), sources={"train.py": source}))
    first = judged.causes[0]
    if found is None:
        assert first.id == "evaluated-models-differ"
    else:
        assert first.id == "model-updated-on-some-ranks"
        assert (first.get("ranks"), first.get("line")) == found
        assert first.get("condition") == "train.py:11 (if rank == 0)"


def test_gradients_of_ranks_with_different_teachers_are_not_judged() -> None:
    ranks = [[LOADED, module(), state(0, **{"0.0": "p", "m0.weight": own}), backward(), step()] for own in "ab"]
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


def test_drift_is_told_with_the_last_step_in_which_parameters_are_equal() -> None:
    own = [state(0, **{"0.0": "p"}), step(), state(6, **{"0.0": "q"}), state(12, **{"0.0": "r"})]
    other = [*own[:3], state(12, **{"0.0": "s"})]
    headline = replicas.replicas_stay_equal(evidence(own, other)).headline
    assert "1 parameter differs in step 12" in headline
    assert "in step 6 they are equal" in headline


def loads(step: int = 0) -> Event:
    return {"kind": "optimizer_loaded", "optimizer": 0, "step": step, "line": "train.py:6"}


def begins(*digests: str, counted: int = 0, step: int = 0) -> Event:
    made: Event = {
        "kind": "optimizer_state",
        "optimizer": 0,
        "step": step,
        "digests": list(digests),
        "counted": counted,
    }
    return {**made, "line": "train.py:9"}


def drifts(*ranks: list[Event], later: tuple[str, str] = ("q", "r"), drift: int = 1) -> LawVerdict:
    """Parameters are equal in step 0, and `later` in step `drift`."""
    return replicas.replicas_stay_equal(
        evidence(
            *(
                [state(0, **{"0.0": "p"}), *own, step(), state(drift, **{"0.0": last})]
                for own, last in zip(ranks, later, strict=True)
            )
        )
    )


def test_an_optimizer_whose_state_some_ranks_load() -> None:
    found = drifts([loads(), begins("m", counted=20)], [begins()])
    assert [each.id for each in found.causes] == ["optimizer-state-loaded-on-one-rank", "replicas-drift"]
    assert (found.causes[0].get("ranks"), found.causes[0].get("line")) == ((0,), "train.py:6")
    assert "20, 0 steps" in found.causes[0].because
    of_momentum = drifts([begins("", "")], [loads(), begins("", "m")]).causes[0]
    assert (of_momentum.get("ranks"), "parameter 1" in of_momentum.because) == ((1,), True)

    sent = drifts([loads(), begins("m", counted=20)], [begins("m", counted=20)])
    assert cause(sent) == "replicas-drift", "rank 0 alone loads, and sends the state to rank 1"
    equal = drifts([loads(), begins("m")], [begins()], later=("q", "q"))
    assert equal.status == "held", "what follows from the states is made equal"


def test_optimizers_that_begin_with_states_of_their_own() -> None:
    assert cause(drifts([begins("m")], [begins("n")])) == "optimizer-states-differ"
    assert cause(drifts([loads(), begins("m")], [loads(), begins("n")])) == "optimizer-states-differ"
    parts = drifts([loads(), begins("m", "")], [loads(), begins("", "n")])
    assert cause(parts) == "replicas-drift", "each rank has a part of the state, as in ZeRO"
    late = drifts([begins("m", step=1)], [begins("n", step=1)])
    assert cause(late) == "replicas-drift", "the optimizer has not stepped yet when parameters differ"


def test_an_optimizer_whose_state_some_ranks_load_later() -> None:
    found = drifts([begins(), loads(5)], [begins()], drift=6).causes[0]
    assert (found.id, found.certainty) == ("optimizer-state-loaded-on-one-rank", "likely")
    assert cause(drifts([begins(), loads(5)], [begins(), loads(5)], drift=6)) == "replicas-drift"
    assert cause(drifts([begins(), loads(6)], [begins()], drift=6)) == "replicas-drift", "they differ before"


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


def test_parameters_that_one_rank_changes_after_the_step() -> None:
    def judged(*after: str) -> list[str]:
        ranks = [
            [state(0, **{"0.0": "p"}), step(after=[each]), state(1, **{"0.0": now})]
            for each, now in zip(after, ("clamped", "q"), strict=True)
        ]
        return [each.id for each in replicas.replicas_stay_equal(evidence(*ranks)).causes]

    assert judged("q", "q") == ["parameters-changed-apart", "replicas-drift"]
    assert judged("q", "r") == judged("", "") == ["replicas-drift"]


def test_weights_that_are_swapped_in_for_a_while() -> None:
    """Each rank puts in weights of its own after a step, and those of before back, unless a broadcast made them equal."""

    def judged(*more: Event, back: str = "q") -> str:
        ranks: list[list[Event]] = [
            [
                state(0, **{"0.0": "p"}),
                step(after=["q"]),
                state(1, **{"0.0": f"average of rank {rank}"}),
                *more,
                state(2, **{"0.0": back + str(rank) * (back != "q")}),
            ]
            for rank in range(2)
        ]
        return cause(replicas.replicas_stay_equal(evidence(*ranks)))

    assert judged() == "swapped-in-weights-differ"
    assert judged(back="r") == "parameters-changed-apart"
    assert judged(call("broadcast", "train.py:9", step=1)) == "parameters-changed-apart"


def test_a_buffer_of_a_loss_is_in_no_wrapper() -> None:
    def judged(*, used: bool) -> LawVerdict:
        modules = [
            {"kind": "module", "place": 0, "name": "Net", "wrapper": "DistributedDataParallel"},
            {"kind": "module", "place": 1, "name": "Loss", "wrapper": ""},
        ]
        uses = [{"kind": "used_buffer", "buffer": "center", "step": 0, "line": "train.py:7"}] if used else []
        ranks = [
            [WRAPPED, *modules, *uses, state(0, **{"b1.center": "0"}), step(), state(1, **{"b1.center": own})]
            for own in "ab"
        ]
        return replicas.buffers_are_equal(evidence(*ranks))

    assert cause(judged(used=True)) == "buffers-differ"
    assert judged(used=False).status == "held"


def test_statistics_that_each_rank_estimates_from_its_own_shard() -> None:
    def judged(*digests: str) -> LawVerdict:
        ranks = [
            [
                {
                    "kind": "statistics",
                    "module": "Averaged",
                    "step": 3,
                    "digests": {"1.running_mean": each},
                    "line": "train.py:8",
                }
            ]
            for each in digests
        ]
        return replicas.evaluated_models_are_equal(evidence(*ranks))

    assert cause(judged("a", "b")) == "statistics-of-own-shard"
    assert judged("a", "a").status == "not judged"


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (("a", "a"), ("a", "b"), "broken"),  # the last rank alone updates it
        (("a", "a"), ("b", "a"), "not judged"),  # rank 0 alone, which saves it
        (("a", "b"), ("a", "b"), "not judged"),
    ],
)
def test_a_model_that_is_only_saved(first: tuple[str, str], last: tuple[str, str], expected: str) -> None:
    name = "uNet 0.weight"
    ranks = [
        [
            state(0, **{name: first[rank]}),
            {"kind": "write", "number": 0, "step": 0, "line": f"train.py:{9 + rank}", "callers": []},
            {"kind": "written", "step": 0, "names": {name: [0] if first[rank] != last[rank] else []}},
            state(1, **{name: last[rank]}),
        ]
        for rank in range(2)
    ]
    judged = replicas.evaluated_models_are_equal(evidence(*ranks))
    assert judged.status == expected
    assert "Net" in (judged.note or judged.headline)
