"""The budget of hangs: which checks run after a hang, and with which deadline."""

from __future__ import annotations

from ddpcheck.checks import Check
from ddpcheck.contract import needs
from ddpcheck.contract.needs import Need
from ddpcheck.running.hang_budget import HangBudget, facet_of


def made(name: str, *needed: Need, family: str = "some") -> Check:
    return Check(f"check_{name}", family, needed, "It holds.", lambda session: None)


SUMS = [made(f"sum_{number}", needs.collectives.operations("all_reduce")) for number in range(6)]
TRAINS = [made(f"train_{number}", needs.ranks(2), needs.replica) for number in range(6)]
SCORES = made("scores", needs.scores.score_names("auc"))


def test_a_check_is_of_the_facet_that_it_needs() -> None:
    assert [facet_of(check) for check in (SUMS[0], TRAINS[0], SCORES)] == ["collectives", "replica", "scores"]
    assert facet_of(made("meets", needs.ranks(2), family="rendezvous")) == "rendezvous"


def test_after_several_hangs_the_other_checks_of_that_facet_are_left_out() -> None:
    hangs = HangBudget(2)
    assert not hangs.leaves_out(SUMS[0], 2)
    hangs.add(SUMS[0], 2)
    assert not hangs.leaves_out(SUMS[3], 2)
    hangs.add(SUMS[1], 2)
    assert hangs.leaves_out(SUMS[3], 2) == (
        "2 of the checks of collectives hung before it; --check with its name runs it alone"
    )
    assert not hangs.leaves_out(TRAINS[0], 2)


def test_fewer_may_hang_of_the_next_facet() -> None:
    hangs = HangBudget(2)
    for check in SUMS[:2]:
        hangs.add(check, 2)
    hangs.add(TRAINS[0], 2)
    assert "1 of the checks of replica hung before it" in hangs.leaves_out(TRAINS[1], 2)


def test_at_another_world_size_one_hang_of_a_facet_is_enough_and_what_hung_does_not_run_again() -> None:
    hangs = HangBudget(5)
    hangs.add(SUMS[0], 2)
    assert hangs.leaves_out(SUMS[0], 3).startswith("the check hung at world size 2")
    assert not hangs.leaves_out(SUMS[0], 2)
    assert not hangs.leaves_out(SUMS[1], 3)
    hangs.add(SUMS[1], 3)
    assert "1 of the checks of collectives hung" in hangs.leaves_out(SUMS[2], 3)
    assert not hangs.leaves_out(SUMS[2], 2)  # four more may hang where the first hung


def test_where_everything_hangs_no_other_world_size_is_tried() -> None:
    hangs = HangBudget(5)
    for check in (SUMS[0], TRAINS[0], SCORES):
        assert not hangs.leaves_out(SUMS[1], 3)
        hangs.add(check, 2)
    assert hangs.leaves_out(SUMS[1], 3).startswith("collectives hung at world size 2, as many others did")
    assert not hangs.leaves_out(made("draws", needs.randomness), 3)


def test_a_second_hang_is_waited_for_less_long_but_where_time_is_what_matters() -> None:
    hangs = HangBudget(5)
    assert hangs.seconds(SUMS[0], 30.0) == 30.0
    hangs.add(SUMS[0], 2)
    assert [hangs.seconds(SUMS[1], deadline) for deadline in (30.0, 6.0, 1.0)] == [10.0, 3.0, 1.0]
    assert hangs.seconds(made("notices", needs.collectives.operations("all_reduce"), family="failures"), 30.0) == 30.0


def test_without_a_limit_every_hang_is_waited_for() -> None:
    hangs = HangBudget(None)
    for check in SUMS:
        hangs.add(check, 2)
    assert not hangs.leaves_out(SUMS[0], 3)
    assert hangs.seconds(SUMS[0], 30.0) == 30.0
