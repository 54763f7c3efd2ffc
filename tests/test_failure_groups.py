"""Groups of failures: which failures count as one, which cause leads them, and which group is first."""

from __future__ import annotations

from dataclasses import replace

from failed_verdicts import failed, headlines

from ddpcheck.causes import (
    Cause,
    gradients,
    operations,
    process_state,
    programs,
    randomness,
    ranks,
    replicas,
    updates,
    values,
)
from ddpcheck.running.failure_causes import identity_of
from ddpcheck.running.failure_groups import group_failures
from ddpcheck.verdict import Verdict

SUMMED = Cause("summed-not-averaged", (("factor", 2.0),))
TAIL = Cause("tail-not-reduced")
NAN = Cause("nan-lost")
GUESS = Cause("first-update", certainty="possible")
NOT_REDUCED = values.NOT_REDUCED()
NAN_KEPT = replicas.NAN_KEPT_AFTER_ZERO_GRAD()


def test_a_cause_is_one_at_every_world_size_and_with_every_further_cause() -> None:
    identities = {
        identity_of(failed("a", "gradients", SUMMED)),
        identity_of(failed("b", "gradients", Cause("summed-not-averaged", (("factor", 3.0),)), at=3)),
        identity_of(failed("c", "gradients", SUMMED, GUESS)),
    }
    assert identities == {("summed-not-averaged",)}


def test_an_error_is_one_if_its_type_and_its_place_are() -> None:
    here, there = (ranks.RANK_RAISED(error="TypeError", at=f"mine.py:{line} in all_reduce") for line in (41, 52))
    assert identity_of(failed("a", "collectives", here)) == identity_of(failed("b", "gradients", here, at=3))
    assert identity_of(failed("a", "collectives", here)) != identity_of(failed("a", "collectives", there))


def test_without_a_cause_each_check_stands_alone() -> None:
    verdicts = [failed("a", "gradients"), failed("a", "gradients", at=3), failed("b", "gradients")]
    assert [group.checks for group in group_failures(verdicts)] == [("a",), ("b",)]
    assert group_failures(verdicts)[0].world_sizes == (2, 3)


def test_fundamental_causes_come_first() -> None:
    verdicts = [
        *(failed(f"gradients_{number}", "gradients", SUMMED) for number in range(5)),
        failed("runs", "trainer", NAN),
        *(failed(f"sums_{number}", "collectives", TAIL) for number in range(2)),
    ]
    assert headlines(verdicts) == [TAIL.headline, SUMMED.headline, NAN.headline]


def test_certain_causes_come_before_guesses() -> None:
    verdicts = [
        failed("sums", "collectives"),
        failed("updates", "gradients", GUESS),
        failed("runs", "programs", TAIL),
    ]
    assert [group.checks for group in group_failures(verdicts)] == [("runs",), ("sums",), ("updates",)]


def test_a_rare_failure_does_not_hide_what_fails_everywhere() -> None:
    verdicts = [failed("nan", "collectives", NAN)]
    verdicts += [failed(f"gradients_{number}", "gradients", SUMMED) for number in range(5)]
    assert headlines(verdicts) == [SUMMED.headline, NAN.headline]


def test_rare_mechanism_comes_before_rare_symptom() -> None:
    often, rare, look = NAN_KEPT, updates.NORM_STALE(), values.WRONG_SIGN()
    verdicts = [failed("sign", "gradients", look), failed("norm", "programs", rare)]
    verdicts += [failed(f"nan_{number}", "gradients", often) for number in range(7)]
    assert headlines(verdicts) == [often.headline, rare.headline, look.headline]


def test_hangs_are_one_whatever_they_may_come_from_and_what_passed_is_in_no_group() -> None:
    here = failed("a", "collectives", ranks.LEFT_COLLECTIVE_EARLY(ranks=(1,)), status="hung")
    there = failed("a", "collectives", ranks.LEFT_COLLECTIVE_EARLY(ranks=(1, 2)), status="hung", at=3)
    fine = Verdict("mine", 2, "c", "collectives", "passed")
    (group,) = group_failures([here, there, fine])
    assert group.verdicts == (here, there)


def test_adapters_are_kept_apart_and_a_check_that_crashed_is_told() -> None:
    crashed = Verdict("other", 2, "d", "gradients", "unknown", reason="Traceback\n  ...\nZeroDivisionError: by zero")
    first, second = group_failures([failed("a", "gradients", SUMMED), crashed])
    assert (first.first.adapter, second.first.adapter) == ("mine", "other")
    assert second.text == "the check itself crashed: ZeroDivisionError: by zero"


def test_a_consequence_is_told_by_the_one_of_its_causes_that_explains_other_failures() -> None:
    drawn = randomness.GLOBAL_GENERATOR_DECIDES()
    verdicts = [
        failed("norms", "trajectories", NAN),
        failed("updates", "replica_sync", programs.OWN_VALUE_IN_UPDATE(), drawn),
        failed("state", "replica_sync", process_state.GENERATOR_CHANGED(generators=("random",))),
    ]
    first, second = group_failures(verdicts)
    assert (first.text, second.text) == (drawn.headline, NAN.headline)
    assert [symptom.checks for symptom in first.symptoms] == [("state",)]


def test_symptom_is_explained_by_its_common_condition() -> None:
    frozen = programs.UNTIL_FROZEN(count=9)
    both = [failed("unfrozen", "trajectories", NOT_REDUCED, frozen), failed("long", "programs", NOT_REDUCED, frozen)]
    assert headlines(both) == [frozen.headline]
    assert group_failures([*both, failed("gradients", "gradients", NOT_REDUCED)])[0].text == NOT_REDUCED.headline


def test_a_cause_that_most_failures_of_another_allow_explains_them() -> None:
    windows = gradients.DIVIDED_BY_MICRO_BATCHES(count=3)
    often = values.DIVIDED_TOO_OFTEN(world_size=2)
    verdicts = [
        failed("mean", "gradients", often, windows),
        failed("resumed", "accumulation", often, windows),
        failed("window", "accumulation", windows),
    ]
    assert headlines(verdicts) == [windows.headline]


def test_of_two_causes_of_a_value_the_one_that_others_show_leads() -> None:
    kept, divided = replicas.ONE_PARAMETER_NOT_RESET(), gradients.LOSS_DIVIDED_BY_WORLD_SIZE(world_size=2)
    either = failed("mean of own", "gradients", kept, SUMMED)
    assert headlines([either]) == [kept.headline]
    both = [either, failed("local", "accumulation", divided)]
    assert headlines(both) == [divided.headline]


def test_a_divisor_of_ranks_or_micro_batches_is_that_of_windows_if_single_backwards_are_right() -> None:
    ranks_, windows = values.DIVIDED_TOO_OFTEN(world_size=2), gradients.DIVIDED_BY_MICRO_BATCHES(count=2)
    either = failed("mean of own", "gradients", ranks_, windows)
    assert headlines([either]) == [ranks_.headline]
    single = replace(either, check="check_gradients_equal_the_large_batch_exactly", status="passed", diagnosis=None)
    assert headlines([single, either]) == [windows.headline]


def test_a_missing_backward_is_reduced_early_after_no_sync_if_single_backwards_are_right() -> None:
    missing, early = gradients.LAST_MICRO_BATCH_MISSING(), programs.REDUCED_EARLY_AFTER_NO_SYNC().but("possible")
    windows = failed("windows", "accumulation", missing, early)
    assert headlines([windows]) == [missing.headline]
    single = replace(windows, check="check_gradients_equal_the_large_batch_exactly", status="passed", diagnosis=None)
    zero = failed("mean of own", "gradients", values.ZERO())
    assert headlines([single, windows, zero]) == [early.headline]


def test_possible_cause_of_all_failures_explains_those_that_only_describe_values() -> None:
    idle = operations.IDLE_RANK_SKIPS(ranks=(1,)).but("possible")
    verdicts = [failed("uneven", "gradients", idle), failed("windows", "accumulation", NOT_REDUCED, idle)]
    (group,) = group_failures(verdicts)
    assert group.text == idle.headline
    elsewhere = failed("exact", "gradients", NOT_REDUCED)
    assert group_failures([*verdicts, elsewhere])[0].text == NOT_REDUCED.headline


def test_guess_that_is_known_from_another_failure_is_kept() -> None:
    """A loss of zero may be the mean of all ranks' losses, or not written."""
    mean, zero = gradients.LOSS_AVERAGED(), values.ZERO()
    large = gradients.PART_OF_LARGE_TENSOR_ZERO(first=8, last=9, elements=10)
    verdicts = [
        failed("zero", "gradients", mean.but("possible"), zero.but("possible")),
        failed("large", "buckets", large),
    ]
    assert headlines(verdicts) == [zero.headline]
    known = failed("mean", "gradients", mean)
    assert headlines([*verdicts, known]) == [mean.headline, large.headline]


def test_one_program_mistake_is_one_cause_in_all_circumstances() -> None:
    slip = ranks.RANK_RAISED(error="TypeError", at="mine.py:41 in all_reduce")
    verdicts = [
        failed("empty", "collectives", operations.EMPTY_ARRAY(), slip),
        failed("scalars", "collectives", operations.ZERO_DIMENSIONS(), slip),
        failed("sums", "collectives", slip),
    ]
    assert headlines(verdicts) == [slip.headline]
    assert group_failures(verdicts[:1])[0].text == operations.EMPTY_ARRAY().headline
