"""Which failures are told as one, and which of them first."""

from __future__ import annotations

from ddpcheck.alike import alike, known_by
from ddpcheck.verdict import Diagnosis, Status, Verdict

SUMMED = "exactly 2 x too large at world size 2: summed, not averaged"


def failed(
    check: str, family: str, cause: str = "", *, headline: str = "got 2, but should be 1", at: int = 2,
    status: Status = "failed", adapter: str = "mine",
) -> Verdict:  # fmt: skip
    return Verdict(adapter, at, check, family, status, diagnosis=Diagnosis(headline, cause))


def test_a_cause_is_one_at_every_world_size_and_with_every_supplement() -> None:
    words = {
        known_by(failed("a", "gradients", SUMMED)),
        known_by(failed("b", "gradients", SUMMED.replace("2", "3"), at=3)),
        known_by(failed("c", "gradients", f"{SUMMED}; or what was gathered before went in, too")),
    }
    assert words == {"exactly # x too large at world size #: summed, not averaged"}


def test_an_error_is_one_wherever_and_on_whichever_rank_it_is_raised() -> None:
    said = [
        "rank 1 raised an error in operation 0 (all_reduce): TypeError: unexpected keyword argument 'group'",
        "rank 0 raised an error in operation 12 (broadcast): TypeError: unexpected keyword argument 'group'",
        "rank 0 raised an error in make_replica(), before operation 1 (backward): TypeError: unexpected keyword argument 'group'",
    ]
    assert {known_by(failed("a", "collectives", headline=text)) for text in said} == {
        "TypeError: unexpected keyword argument 'group'"
    }
    died = [f"rank {rank} died in operation 1 (backward): rank {rank} exited with status 9" for rank in (0, 1)]
    assert len({known_by(failed("a", "gradients", headline=text)) for text in died}) == 1
    told = "rank 0 returned what the contract does not allow in operation 0 (all_reduce): "
    shapes = [f"{told}got float32[16637], not float32[{shape}]" for shape in ("127, 131", "4", "2, 3, 5")]
    assert len({known_by(failed("a", "collectives", headline=text)) for text in shapes}) == 1


def test_without_a_cause_each_check_stands_alone() -> None:
    verdicts = [failed("a", "gradients"), failed("a", "gradients", at=3), failed("b", "gradients")]
    assert [group.checks for group in alike(verdicts)] == [("a",), ("b",)]
    assert alike(verdicts)[0].world_sizes == (2, 3)


def test_what_others_rest_on_stands_in_front() -> None:
    verdicts = [
        *(failed(f"gradients_{number}", "gradients", SUMMED) for number in range(5)),
        failed("runs", "trainer", "the loss is another"),
        *(failed(f"sums_{number}", "collectives", "the last elements are missing") for number in range(2)),
    ]
    assert [group.text for group in alike(verdicts)] == ["the last elements are missing", SUMMED, "the loss is another"]


def test_a_guess_stands_behind_what_is_sure() -> None:
    guess = failed("updates", "gradients", "it is the first update: a state of before may go into it")
    verdicts = [failed("sums", "collectives"), guess, failed("runs", "programs", "it is rounded as in bfloat16")]
    assert [group.checks for group in alike(verdicts)] == [("runs",), ("sums",), ("updates",)]


def test_a_rare_failure_does_not_hide_what_fails_everywhere() -> None:
    verdicts = [failed("nan", "collectives", "a NaN is lost")]
    verdicts += [failed(f"gradients_{number}", "gradients", SUMMED) for number in range(5)]
    assert [group.text for group in alike(verdicts)] == [SUMMED, "a NaN is lost"]


def test_hangs_are_one_whatever_they_may_come_from_and_what_passed_is_in_no_group() -> None:
    here = failed("a", "collectives", "rank 1 went through without the others: it left", status="hung")
    there = failed("a", "collectives", "rank 1, 2 went through without the others: they left", status="hung", at=3)
    fine = Verdict("mine", 2, "c", "collectives", "passed")
    (group,) = alike([here, there, fine])
    assert group.verdicts == (here, there)


def test_adapters_are_kept_apart_and_a_check_that_crashed_is_told() -> None:
    crashed = Verdict("other", 2, "d", "gradients", "unknown", reason="Traceback\n  ...\nZeroDivisionError: by zero")
    first, second = alike([failed("a", "gradients", SUMMED), crashed])
    assert (first.first.adapter, second.first.adapter) == ("mine", "other")
    assert second.text == "the check itself crashed: ZeroDivisionError: by zero"
