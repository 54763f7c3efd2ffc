"""Causes that checks tell again: which cause is new, and when a family of checks runs fewer Jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from failed_verdicts import failed

from ddpcheck.causes import Cause, programs, replicas, updates, values
from ddpcheck.checks import Check
from ddpcheck.running.implied_causes import adds_to
from ddpcheck.running.repeated_causes import RepeatedCauses

GUESS = Cause("first-update", certainty="possible")
NOT_REDUCED = values.NOT_REDUCED()


def test_causes_of_all_checks_are_known() -> None:
    seen = RepeatedCauses()
    seen.add(failed("a", "gradients", NOT_REDUCED, GUESS))
    seen.add(failed("b", "gradients"))
    seen.add(failed("c", "trajectories", updates.NESTEROV(), at=3))
    assert seen.causes == {NOT_REDUCED.id, updates.NESTEROV.id}


@pytest.mark.parametrize(
    ("causes", "new"),
    [
        ((updates.NESTEROV(), NOT_REDUCED), True),
        ((updates.NESTEROV().but("possible"),), False),
        ((values.WRONG_SIGN(),), False),  # describes a value
        ((programs.NORM_TOO_LARGE().but("likely"),), False),
        ((replicas.REPLICAS_DIFFER(),), False),  # a consequence of any cause
        ((values.NOT_REDUCED(),), False),  # told
        ((values.PART_NOT_REDUCED(),), False),  # implied by the told one
        ((), False),
    ],
)
def test_new_cause_is_a_mistake_that_no_told_cause_implies(causes: tuple[Cause, ...], new: bool) -> None:
    assert adds_to({values.NOT_REDUCED.id}, causes) == new


def test_after_three_checks_of_one_cause_the_family_takes_one_job_each() -> None:
    seen = RepeatedCauses()
    check = Check("check_d", "gradients", (), "It holds.", lambda session: None)
    for name in "abc":
        assert seen.shortens(check) == ""
        seen.add(failed(name, "gradients", NOT_REDUCED, at=2 + ord(name) % 2))
    assert (
        seen.shortens(check)
        == "one Job only, since 3 checks of gradients fail by one cause; --level full runs all Jobs"
    )
    assert seen.shortens(replace(check, family="buckets")) == ""
    assert seen.shortens(replace(check, name="a")) == ""
