"""Which failures are told as one, and which of them first."""

from __future__ import annotations

from ddpcheck.causes import Cause, ranks
from ddpcheck.running.failure_groups import alike, known_by
from ddpcheck.verdict import Diagnosis, Status, Verdict

SUMMED = Cause("summed-not-averaged", (("factor", 2.0),))
TAIL = Cause("tail-not-reduced")
NAN = Cause("nan-lost")
GUESS = Cause("first-update", certainty="possible")


def failed(
    check: str, family: str, *causes: Cause, headline: str = "got 2, but should be 1", at: int = 2,
    status: Status = "failed", adapter: str = "mine",
) -> Verdict:  # fmt: skip
    return Verdict(adapter, at, check, family, status, diagnosis=Diagnosis(headline, causes))


def test_a_cause_is_one_at_every_world_size_and_with_every_further_cause() -> None:
    identities = {
        known_by(failed("a", "gradients", SUMMED)),
        known_by(failed("b", "gradients", Cause("summed-not-averaged", (("factor", 3.0),)), at=3)),
        known_by(failed("c", "gradients", SUMMED, GUESS)),
    }
    assert identities == {("summed-not-averaged",)}


def test_an_error_is_one_if_its_type_and_its_place_are() -> None:
    here, there = (ranks.RANK_RAISED(error="TypeError", at=f"mine.py:{line} in all_reduce") for line in (41, 52))
    assert known_by(failed("a", "collectives", here)) == known_by(failed("b", "gradients", here, at=3))
    assert known_by(failed("a", "collectives", here)) != known_by(failed("a", "collectives", there))


def test_without_a_cause_each_check_stands_alone() -> None:
    verdicts = [failed("a", "gradients"), failed("a", "gradients", at=3), failed("b", "gradients")]
    assert [group.checks for group in alike(verdicts)] == [("a",), ("b",)]
    assert alike(verdicts)[0].world_sizes == (2, 3)


def test_what_others_rest_on_stands_in_front() -> None:
    verdicts = [
        *(failed(f"gradients_{number}", "gradients", SUMMED) for number in range(5)),
        failed("runs", "trainer", NAN),
        *(failed(f"sums_{number}", "collectives", TAIL) for number in range(2)),
    ]
    assert [group.text for group in alike(verdicts)] == [TAIL.headline, SUMMED.headline, NAN.headline]


def test_a_guess_stands_behind_what_is_sure() -> None:
    verdicts = [
        failed("sums", "collectives"),
        failed("updates", "gradients", GUESS),
        failed("runs", "programs", TAIL),
    ]
    assert [group.checks for group in alike(verdicts)] == [("runs",), ("sums",), ("updates",)]


def test_a_rare_failure_does_not_hide_what_fails_everywhere() -> None:
    verdicts = [failed("nan", "collectives", NAN)]
    verdicts += [failed(f"gradients_{number}", "gradients", SUMMED) for number in range(5)]
    assert [group.text for group in alike(verdicts)] == [SUMMED.headline, NAN.headline]


def test_hangs_are_one_whatever_they_may_come_from_and_what_passed_is_in_no_group() -> None:
    here = failed("a", "collectives", ranks.LEFT_COLLECTIVE_EARLY(ranks=(1,)), status="hung")
    there = failed("a", "collectives", ranks.LEFT_COLLECTIVE_EARLY(ranks=(1, 2)), status="hung", at=3)
    fine = Verdict("mine", 2, "c", "collectives", "passed")
    (group,) = alike([here, there, fine])
    assert group.verdicts == (here, there)


def test_adapters_are_kept_apart_and_a_check_that_crashed_is_told() -> None:
    crashed = Verdict("other", 2, "d", "gradients", "unknown", reason="Traceback\n  ...\nZeroDivisionError: by zero")
    first, second = alike([failed("a", "gradients", SUMMED), crashed])
    assert (first.first.adapter, second.first.adapter) == ("mine", "other")
    assert second.text == "the check itself crashed: ZeroDivisionError: by zero"
