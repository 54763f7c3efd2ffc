"""Symptoms: which groups of failures follow from another group's cause."""

from __future__ import annotations

from dataclasses import replace

import pytest
from failed_verdicts import about, failed, headlines

from ddpcheck.causes import (
    KINDS,
    Cause,
    auxiliary_terms,
    collectives,
    gradients,
    lifecycle,
    metrics,
    operations,
    programs,
    randomness,
    ranks,
    rendezvous,
    replicas,
    samplers,
    scores,
    traffic,
    training,
    updates,
    values,
)
from ddpcheck.contract import TYPICAL
from ddpcheck.job import Train
from ddpcheck.running.failure_causes import headline_of
from ddpcheck.running.failure_groups import group_failures
from ddpcheck.running.implied_causes import IMPLIES, implied_by
from ddpcheck.verdict import Verdict
from ddpcheck_properties.training.drawn_runs import run_job

SUMMED = Cause("summed-not-averaged", (("factor", 2.0),))
NAN = Cause("nan-lost")
GUESS = Cause("first-update", certainty="possible")
NOT_REDUCED = values.NOT_REDUCED()
OWN_UPDATE = updates.UPDATED_BY_OWN()
NAN_KEPT = replicas.NAN_KEPT_AFTER_ZERO_GRAD()
WRONG_FORWARD = programs.WRONG_FORWARD_VALUES().but("likely")


@pytest.mark.parametrize(
    ("verdicts", "leading"),
    [
        pytest.param(
            [failed("clip", "trajectories", NAN), failed("gradients", "gradients", NOT_REDUCED)],
            [NOT_REDUCED, NAN],
            id="two mistakes are two causes",
        ),
        pytest.param(
            [failed("a", "gradients", OWN_UPDATE), failed("b", "gradients", NOT_REDUCED)],
            [NOT_REDUCED],
            id="a symptom may fail before its cause",
        ),
        pytest.param(
            [
                *(failed(f"gradients {number}", "gradients", NOT_REDUCED) for number in range(3)),
                failed("parameters", "gradients", replicas.PARAMETER_AVERAGED()),
            ],
            [replicas.PARAMETER_AVERAGED()],
            id="averaged parameters explain local gradients",
        ),
        pytest.param(
            [
                *(failed(f"exact {number}", "gradients", NOT_REDUCED) for number in range(3)),
                failed("silent", "wire", traffic.SENT_AFTER_BACKWARD()),
                failed("steps", "trajectories", OWN_UPDATE),
            ],
            [traffic.SENT_AFTER_BACKWARD()],
            id="a reduction after backward explains local gradients",
        ),
        pytest.param(
            [
                failed("windows", "unused", NOT_REDUCED),
                failed("programs", "programs", gradients.SOME_RANKS_NOT_RESET(count=1, world_size=2)),
            ],
            [NOT_REDUCED],
            id="a local gradient that stays is counted again",
        ),
        pytest.param(
            [
                failed("steps", "accumulation", updates.NOT_UPDATED()),
                failed("large", "buckets", updates.DECAY_MISSING()),
            ],
            [updates.DECAY_MISSING()],
            id="without weight decay, a parameter without gradient does not move",
        ),
        pytest.param(
            [
                failed("mean of own", "gradients", SUMMED),
                failed("local", "accumulation", gradients.LOSS_DIVIDED_BY_WORLD_SIZE(world_size=2)),
                failed("programs", "programs", gradients.DIVIDED_BY_MICRO_BATCHES(count=2)),
            ],
            [gradients.LOSS_DIVIDED_BY_WORLD_SIZE(world_size=2)],
            id="beside local gradients of a divided loss, reduced ones look summed",
        ),
        pytest.param(
            [
                failed("backward", "gradients", replicas.BACKWARD_MOVES_PARAMETERS()),
                failed("trajectory", "trajectories", updates.UPDATED_TWICE()),
                failed("rate", "trajectories", updates.RATE_SCALED(factor=2.0, world_size=2)),
                failed("other", "trajectories", updates.RATE_SCALED(factor=2.0, world_size=2)),
                failed("nan", "gradients", NAN_KEPT),
            ],
            [replicas.BACKWARD_MOVES_PARAMETERS()],
            id="a step inside backward explains wrong updates",
        ),
        pytest.param(
            [
                *(failed(f"loss {number}", "gradients", WRONG_FORWARD) for number in range(3)),
                failed("start", "programs", programs.CONSTRUCTION_VALUE()),
                failed("resume", "programs", programs.CONSTRUCTION_VALUE()),
                failed("backward", "gradients", replicas.BACKWARD_MOVES_PARAMETERS().but("possible")),
            ],
            [WRONG_FORWARD],
            id="of groups that explain each other in a circle, the largest leads",
        ),
        pytest.param(
            [
                *(failed(f"exact {number}", "gradients", NOT_REDUCED) for number in range(3)),
                failed("accumulated", "accumulation", gradients.STATE_LEFT_BEHIND().but("possible")),
                failed("unfrozen", "trajectories", gradients.UNPACKED_IN_OTHER_ORDER()),
            ],
            [NOT_REDUCED, gradients.UNPACKED_IN_OTHER_ORDER()],
            id="an earlier operation that is blamed for a symptom explains no third failure",
        ),
        pytest.param(
            [
                failed("gradients", "gradients", NOT_REDUCED),
                failed("starts", "rendezvous", programs.OWN_VALUE_IN_UPDATE()),
                failed("sizes", "wire", GUESS),
            ],
            [NOT_REDUCED],
            id="consequences in checks of circumstances are symptoms",
        ),
    ],
)
def test_leading_causes_of(verdicts: list[Verdict], leading: list[Cause]) -> None:
    assert headlines(verdicts) == [cause.headline for cause in leading]


def test_symptom_is_grouped_under_its_cause() -> None:
    verdicts = [
        failed("gradients", "gradients", NOT_REDUCED),
        failed("steps", "trajectories", OWN_UPDATE),
        failed("sync", "replica_sync", replicas.REPLICAS_DIFFER()),
        failed("programs", "programs"),
        failed("late", "replica_sync", GUESS),
    ]
    (group,) = group_failures(verdicts)
    assert group.text == NOT_REDUCED.headline
    assert {name for symptom in group.symptoms for name in symptom.checks} == {"steps", "sync", "programs", "late"}
    assert group.to_plain()["symptoms"][0]["cause"] == OWN_UPDATE.id
    assert group.explained[0] == "gradients"


def test_a_message_that_is_read_in_part_explains_errors_and_hangs() -> None:
    """The check of fragments comes late, and names the mistake; the others show what follows from it."""
    raised = ranks.RANK_RAISED(error="ValueError", at="mine.py:39 in swap")
    verdicts = [
        failed("large", "collectives", raised),
        failed("nan", "collectives", raised),
        failed("room", "collectives", ranks.ALL_SEND_NONE_RECEIVES(ranks=(0, 1)), status="hung"),
        failed("pieces", "rendezvous", rendezvous.SHORT_READ_TAKEN_FOR_ALL()),
    ]
    (group,) = group_failures(verdicts)
    assert group.checks == ("pieces",)
    assert {check for symptom in group.symptoms for check in symptom.checks} == {"large", "nan", "room"}


def test_mistake_in_rendezvous_explains_starts_that_fail_without_a_cause() -> None:
    early = failed("order", "rendezvous", rendezvous.EARLY_RANK_NOT_AWAITED(order=(1, 0)))
    again = failed("close", "failures", headline="the 2 ranks did not start again after a rank was lost")
    assert len(headlines([early, again])) == 1
    elsewhere = failed("rows", "sampler")
    assert len(headlines([early, elsewhere])) == 2


def test_order_of_arrival_leads_where_an_old_address_may_be_the_cause() -> None:
    early, old = rendezvous.EARLY_RANK_NOT_AWAITED(order=(1, 0)), rendezvous.OLD_WORLD_LEFT()
    again = failed("again", "rendezvous", old, early)
    assert headlines([failed("order", "rendezvous", early), again]) == [early.headline]
    assert headlines([again]) == [old.headline]


def test_a_cause_of_clipping_does_not_explain_a_run_without_it() -> None:
    clipped, plain = (run_job(2, TYPICAL, 6, Train(max_norm=norm)) for norm in (0.25, None))
    not_clipped = failed("parameters", "trainer", training.steps.RUN_NOT_CLIPPED(), job=clipped)
    for job, groups in ((plain, 2), (clipped, 1), (None, 1)):
        assert len(group_failures([not_clipped, failed("loss", "trainer", job=job)])) == groups


def test_side_effects_of_a_race_are_symptoms() -> None:
    """A value that is no proof, and messages that are sent too late, are consequences of a reduction not waited for."""
    other = gradients.OTHER_PARAMETERS_GRADIENT(parameter="scale5.scale").but("possible")
    verdicts = [
        failed("gradients", "gradients", gradients.ONE_RANKS_PART_ONLY(rank=0)),
        failed("sizes", "gradients", values.PARTS_OF_RANKS_MISSING()),
        failed("small", "buckets", other),
        failed("silent", "wire", traffic.SENT_AFTER_BACKWARD()),
    ]
    (group,) = group_failures(verdicts)
    assert group.first.check == "gradients"
    apart = [*verdicts, failed("all silent", "wire", traffic.SENDS_INSIDE_NO_SYNC())]
    assert [each.first.check for each in group_failures(apart)] == ["gradients", "all silent"]


def test_a_cause_explains_nothing_of_a_family_that_does_not_rest_on_its_own() -> None:
    verdicts = [
        failed("gradients", "gradients", NOT_REDUCED),
        failed("orders", "sampler"),
        failed("sums", "collectives"),
    ]
    assert len(group_failures(verdicts)) == 3


def test_a_symptom_without_its_cause_is_a_cause() -> None:
    (group,) = group_failures([failed("sync", "replica_sync", replicas.REPLICAS_DIFFER())])
    assert group.symptoms == ()


def test_symptom_of_one_parameter_is_grouped_under_its_mechanism() -> None:
    padding = gradients.ID_TAKEN_FOR_PADDING(which="first")
    mechanism = [about(failed(name, "gradients", padding), "embedding.weight") for name in ("exact", "rounded")]
    still = about(failed("steps", "trajectories", updates.NOT_UPDATED()), "embedding.weight")
    (group,) = group_failures([*mechanism, still])
    assert (group.text, group.explained) == (padding.headline, ("exact", "rounded", "steps"))
    assert len(group_failures([*mechanism, about(still, "fc1.weight")])) == 2


def test_an_error_elsewhere_does_not_explain_failures_that_name_another_error() -> None:
    here, there = (ranks.RANK_RAISED(error="RuntimeError", at=f"mine.py:{line} in reduce") for line in (41, 52))
    differ = operations.MESSAGES_DIFFER_SINCE(operation=4)
    verdicts = [failed("unused", "unused", differ, there), failed("branches", "buckets", differ, there)]
    assert len(group_failures([*verdicts, failed("sums", "collectives", here)])) == 2
    assert headlines([*verdicts, failed("sums", "collectives", there)]) == [there.headline]


def test_error_does_not_explain_the_mechanism_that_leads_to_it() -> None:
    """Even if more failures show the error alone, and those by the mechanism name it, too."""
    error = ranks.RANK_RAISED(error="Mismatch", at="peer.py:113 in receive")
    mechanism = failed("predict", "replica_sync", operations.EVALUATION_COMMUNICATES(operation=4, ranks=(0,)), error)
    verdicts = [failed("programs", "programs", error), failed("long programs", "programs", error), mechanism]
    assert headlines(verdicts) == [headline_of(mechanism)]


def test_the_cause_that_also_explains_longer_windows_is_told() -> None:
    two, three = gradients.LAST_MICRO_BATCH_ONLY(), gradients.FIRST_MICRO_BATCH_MISSING()
    verdicts = [failed(f"windows_{number}", "accumulation", two) for number in range(5)]
    assert headlines(verdicts) == [two.headline]
    assert headlines([*verdicts, failed("count", "accumulation", three)]) == [three.headline]


def test_mistake_after_the_first_backward_is_no_parameter_order() -> None:
    left, order = gradients.STATE_LEFT_BEHIND(), gradients.UNPACKED_IN_OTHER_ORDER()
    later = [failed(f"later_{number}", "gradients", left) for number in range(4)]
    ordered = [failed(f"first_{number}", "gradients", order) for number in range(6)]
    assert headlines([*later, *ordered[:2]]) == [left.headline]
    assert headlines([*later, *ordered]) == [order.headline]


def test_two_single_failures_in_one_parameter_may_have_two_causes() -> None:
    added = about(failed("windows", "unused", gradients.OTHER_PARAMETER_ADDED(parameter="b")), "branch.weight")
    alone = about(failed("steps", "buckets", NOT_REDUCED), "branch.weight")
    assert set(headlines([added, alone])) == {headline_of(added), NOT_REDUCED.headline}
    more = replace(added, check="more windows")
    (group,) = group_failures([added, more, alone])
    assert group.text == headline_of(added)


def test_old_gradient_is_sent_again_or_kept_whichever_explains_more() -> None:
    kept, sent = gradients.NOT_RESET(), gradients.UNUSED_RANK_SENDS_OLD(ranks=(1,), backwards=1)
    one, many = [failed("programs", "programs", kept)], [failed(name, "unused", sent) for name in "ab"]
    assert headlines([*one, *many]) == [sent.headline]
    many = [failed(name, "gradients", kept) for name in "ab"]
    assert headlines([failed("u", "unused", sent), *many]) == [kept.headline]


def test_value_is_not_loaded_or_stepped_from_before_whichever_explains_more() -> None:
    still, stepped = updates.NOT_LOADED(rank=1), updates.STEPPED_FROM_INITIAL()
    for few, many in ((still, stepped), (stepped, still)):
        told = headlines([failed("one", "programs", few), *(failed(name, "replica_sync", many) for name in "ab")])
        assert told == [many.headline]


@pytest.mark.parametrize(
    "look", [gradients.RANK_SENDS_OTHER_PIECE(rank=1), operations.UNUSED_LEFT_OUT()], ids=["piece", "left-out"]
)
def test_other_layout_of_a_rank_is_one_cause_whether_it_shows_as_parameters_or_not(look: Cause) -> None:
    whole = gradients.RANK_SENDS_OTHER_PARAMETER(rank=1, parameter="b")
    looks, parameters = ([failed(f"{cause.id}_{n}", "unused", cause) for n in range(2)] for cause in (look, whole))
    assert headlines([*looks, *parameters[:1]]) == [look.headline]
    assert headlines([*looks[:1], *parameters]) == [whole.headline]


@pytest.mark.parametrize(
    ("cause", "symptom"),
    [
        (
            auxiliary_terms.TERM_MISSING(term="weight penalty", where="loss"),
            programs.WRONG_FORWARD_VALUES().but("likely"),
        ),
        (training.best_weights.BEST_NOT_COPIED(epoch=0), training.best_weights.BEST_FORGOTTEN_ON_RESUME()),
        (randomness.COMMON_TAKEN_BY_RANK(rank=0, count=1), randomness.COMMON_FROM_OWN()),
        (updates.NOT_LOADED(rank=1), gradients.LOSS_OF_UNLOADED(values="values")),
        (training.resumes.LAST_STEP_NOT_SAVED(ranks="all ranks"), updates.NOT_UPDATED()),
        (updates.CLIPPED_BY_OWN_NORM(), updates.NOT_CLIPPED()),
        (updates.EPSILON_HAT(), updates.BIAS_CORRECTION_MISSING()),
        (updates.STATISTICS_FROM_RANK(rank=1), programs.WRONG_PREDICTION_VALUES().but("possible")),
        (updates.MOMENTUM_IN_FLOAT16(), values.LAST_BITS_WRONG(count=1, size=4, ulp=2)),
        (values.LOSS_SCALE_KEPT(factor=1024.0), updates.EPS_FIXED()),
        (replicas.BROADCAST_IN_FORWARD(), replicas.OWN_INITIAL_VALUE(rank=1)),
        (training.steps.RUN_IN_FLOAT16(), training.steps.FROZEN_LAYER_TRAINED()),
        (training.schedules.SCHEDULE_PER_EPOCH(), training.schedules.SCHEDULE_IGNORED()),
        (training.steps.GRADIENTS_DOUBLED(), training.steps.STEP_TWICE_AS_LONG()),
        (training.steps.GRADIENTS_ZERO(), training.steps.ENDS_WITH_EPOCH(epoch=0)),
        (values.TAIL_WRONG(first=3, byte=24), values.PART_NOT_REDUCED()),
        (values.FIXED_POINT(step=0.5), values.ROUNDED_AS(rounded="Values", dtype="float16", given="float32")),
        (collectives.WORKS_IN_ARGUMENT(), collectives.ARGUMENT_MUST_BE_WRITABLE()),
        (
            operations.NOT_CONVERTED_BACK(dtype="float64", right_dtype="float32"),
            ranks.RESULT_VIOLATES_CONTRACT(operation="rounds"),
        ),
        (programs.OWN_VALUE_IN_UPDATE(), replicas.REPLICAS_DIFFER()),
        (values.NOT_REDUCED(), programs.GRADIENT_DROPPED(users=(0,), world_size=2)),
        (gradients.NOT_RESET(), updates.UPDATED_TWICE()),
        (updates.NORM_IS_LARGEST(), updates.CLIPPED_BY_LARGEST()),
        (collectives.BARRIER_DOES_NOT_BLOCK(), lifecycle.ERROR_SWALLOWED(operation="barrier")),
        (replicas.OWN_INITIAL_VALUE(rank=1), replicas.BUFFERS_APART_IN_NO_SYNC(buffers=("b",))),
        (training.steps.MICRO_BATCHES_COUNTED_ON(), training.schedules.RATE_READ_LATE()),
        (training.steps.TERMS_PER_RANK(), training.steps.TERMS_PER_MICRO_BATCH()),
        (samplers.RANK_STAYS_IN_EPOCH(ranks=(1,)), samplers.LOADED_POSITION_IN_NEXT_EPOCH()),
        (metrics.METRIC_DIVIDED_TWICE(world_size=2), metrics.METRICS_MIXED_UP()),
        (scores.MEAN_OF_RANK_SCORES(), scores.NAN_OF_ONE_CLASS()),
        (randomness.FEW_NUMBERS(count=256), randomness.RANK_NOT_IN_SEED()),
        (randomness.FEW_NUMBERS(count=256), randomness.STREAMS_OVERLAP(part="epoch")),
        (operations.RUN_ENDED_BY_SOME(ranks=(0,), rank=1), ranks.LEFT_COLLECTIVE_EARLY(ranks=(0,))),
        (training.early_stopping.STOPS_BY_OWN_LOSS(), operations.RUN_ENDED_BY_SOME(ranks=(0,), rank=1)),
        (values.DIVIDED_BY_ELEMENTS(size=6, world_size=2), gradients.DIVIDED_BY_MICRO_BATCHES(count=3)),
        (values.WRONG_DIVISOR(factor=2.0, divisor=1, world_size=2), values.SUMMED_NOT_AVERAGED(world_size=2)),
        (gradients.LAST_MICRO_BATCH_ONLY(), replicas.MICRO_BATCHES_LOST(there="2", count=258)),
        (gradients.FIRST_MICRO_BATCH_MISSING(), replicas.MICRO_BATCHES_LOST(there="2", count=258)),
        (collectives.WRITES_AT_START_OF_BASE(), collectives.COPY_REDUCED()),
        (rendezvous.RANK_BY_ARRIVAL(order=(1, 0)), collectives.ROWS_IN_WRONG_ORDER(order=(1, 0))),
    ],
    ids=lambda cause: cause.id,
)
def test_one_mistake_shows_otherwise_in_a_longer_run(cause: Cause, symptom: Cause) -> None:
    verdicts = [failed("short", "programs", cause), failed("long", "programs", symptom)]
    assert headlines(verdicts) == [cause.headline]


def test_cause_in_special_circumstances_explains_no_guess_elsewhere() -> None:
    count = programs.COUNT_CUT_BY_LOADING(count=9)
    special, elsewhere = failed("nan", "gradients", NAN_KEPT), failed("many", "buckets", count.but("possible"))
    assert headlines([special, elsewhere]) == [NAN_KEPT.headline, count.headline]
    more = failed("exact", "gradients", NAN_KEPT)
    assert headlines([special, more, elsewhere]) == [NAN_KEPT.headline]
    moves = programs.EVALUATION_MOVES_STATISTICS()
    predicts = failed("programs", "programs", programs.WRONG_PREDICTION_VALUES().but("possible"))
    assert headlines([failed("look", "gradients", moves), predicts]) == [moves.headline]


def test_gradient_of_an_earlier_backward_explains_its_update_and_its_nan() -> None:
    verdicts = [
        failed("exact", "gradients", gradients.STALE()),
        failed("nan", "gradients", NAN_KEPT),
        failed("steps", "trajectories", updates.GRADIENT_OF_STEP_BEFORE()),
    ]
    (group,) = group_failures(verdicts)
    assert group.first.check == "exact"


def test_description_of_a_value_under_another_cause_explains_no_third_one() -> None:
    """The value of another rank in the embedding is zero for another reason, so it explains nothing of other layers."""
    padding, own = gradients.ID_TAKEN_FOR_PADDING(which="last"), gradients.ACCUMULATED_NOT_REDUCED()
    verdicts = [
        about(failed("exact", "gradients", padding), "embedding.weight"),
        about(failed("rounding", "gradients", padding), "embedding.weight"),
        about(failed("uneven", "gradients", gradients.OTHER_RANKS_VALUE(rank=1)), "embedding.weight"),
        about(failed("random", "programs", own), "fc1.weight"),
    ]
    assert headlines(verdicts) == [padding.headline, own.headline]


def test_description_that_may_come_from_another_cause_explains_no_mechanism() -> None:
    """The local value comes from the idle rank, so the part of a large tensor does not come from it."""
    idle = operations.IDLE_RANK_SKIPS(ranks=(0,))
    part = gradients.PART_OF_LARGE_TENSOR_LOCAL(first=8, last=9, elements=10)
    own = failed("own", "gradients", updates.UPDATED_BY_OWN())
    verdicts = [
        failed("uneven", "gradients", idle),
        failed("local", "accumulation", NOT_REDUCED, idle.but("possible")),
        failed("large", "buckets", part),
    ]
    assert headlines(verdicts) == [idle.headline, part.headline]
    assert headlines([*verdicts[:2], own]) == [idle.headline]


def test_guess_that_alone_explains_known_causes_is_kept() -> None:
    own, moves = replicas.OWN_INITIAL_VALUE(rank=1), replicas.BACKWARD_MOVES_PARAMETERS()
    verdicts = [
        failed("construction", "ranks", own),
        failed("start", "programs", programs.CONSTRUCTION_VALUE()),
        failed("backward", "gradients", moves.but("possible")),
        failed("trajectory", "trajectories", updates.UPDATED_TWICE()),
    ]
    assert headlines(verdicts) == [own.headline, moves.headline]
    assert headlines(verdicts[:-1]) == [own.headline]


def test_circumstance_of_a_known_value_is_explained_by_causes_of_that_value_only() -> None:
    lost, stale = updates.OPTIMIZER_STATE_LOST(), updates.GRADIENT_OF_STEP_BEFORE()
    frozen = programs.UNTIL_FROZEN(count=8)
    for_gradient = failed("unfrozen", "trajectories", NOT_REDUCED, frozen)
    for_update = failed("long", "programs", updates.NOT_UPDATED(), frozen)
    resumed = [failed(f"resumed {number}", "replica_sync", lost) for number in range(2)]
    assert headlines([*resumed, for_gradient]) == [lost.headline, frozen.headline]
    resumed = [failed(f"resumed {number}", "replica_sync", stale) for number in range(2)]
    assert headlines([*resumed, for_update]) == [stale.headline]


def test_no_cause_implies_itself_and_all_are_in_the_catalogue() -> None:
    for cause, implied in IMPLIES.items():
        assert cause in KINDS
        assert implied <= KINDS.keys()
        assert cause not in implied_by(cause)
