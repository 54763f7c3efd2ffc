"""Typical torch wrappers written by hand: correct ones pass, wrong ones get one headline with the true cause."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")

from chosen_faults import EVERY

from ddpcheck.check_levels import Level
from ddpcheck.running.check_runner import Settings, run_checks
from ddpcheck.running.failure_causes import identity_of
from ddpcheck.running.failure_groups import group_failures
from ddpcheck.running.profiles import Profile
from ddpcheck.verdict import Verdict

RIGHT = ("hook_per_parameter", "asynchronous_handles", "buckets", "flat_buffer")
WRONG = {
    "summed": "summed-not-averaged",
    "nothing_at_construction": "own-initial-value",
    "last_bucket_stays": "not-reduced",
    "read_back_reversed": "unpacked-in-other-order",
    "rank_zeros_gradient": "other-ranks-value",
    "divided_twice": "divided-too-often",
    "unused_stay": "reduced-only-if-all-use",
    "parameters_averaged": "parameter-averaged-in-backward",
    "frozen_trained": "moved-though-unused",
    "summed_in_float16": "rounded-as",
    "first_backward_only": "not-reduced",
    "every_second_bucket": "not-reduced",
    "buffers_stay": "own-initial-value",
    "buffers_of_last_rank": "initial-value-of-other-rank",
    "handle_dropped": "handle-not-awaited",
}
"""The cause of each, the most frequent first."""
USUAL = 5
AT_STANDARD = {"unused_stay", "frozen_trained"}
"""These are wrong only on models that are not plain."""
FEW = Profile("few", 3, (2,), "Enough Jobs to show each fault.")


def verdicts_of(reference: str, level: Level) -> list[Verdict]:
    return [*run_checks(reference, settings=Settings(FEW, level=level))]


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_wrapper_passes(name: str) -> None:
    verdicts = verdicts_of(f"wrappers.right:{name}", Level.BASIC)
    assert [verdict for verdict in verdicts if not verdict.ok] == []
    assert sum(verdict.status == "passed" for verdict in verdicts) > 15


@pytest.mark.parametrize("name", list(WRONG) if os.environ.get(EVERY) else list(WRONG)[:USUAL])
def test_a_wrong_wrapper_has_one_headline(name: str) -> None:
    level = Level.STANDARD if name in AT_STANDARD else Level.BASIC
    groups = group_failures(verdicts_of(f"wrappers.wrong:{name}", level))
    assert [identity_of(group.first)[:1] for group in groups] == [(WRONG[name],)]
