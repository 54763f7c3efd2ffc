"""Levels: which checks and models each runs, and how verdicts report the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpcheck import check_adapter
from ddpcheck.check_levels import FEATURE_LEVELS, Level, promises_at_level
from ddpcheck.checks import law
from ddpcheck.contract import TYPICAL
from ddpcheck.contract.allowed_names import ALL_MODEL_FEATURES
from ddpcheck.running.plan import RANKS_START, installed_checks, plan
from ddpcheck.session import Session

MINIMAL = f"{Path(__file__).parent / 'minimal_adapter.py'}:adapter"


def test_a_check_says_from_which_level_on_it_runs() -> None:
    @law("gradients", level=Level.FULL)
    def check_everything(session: Session) -> None:
        """Everything holds."""

    check = check_everything.check  # type: ignore[attr-defined]  # which law() has set
    skips = {level: plan(MINIMAL, [2], [check], level=level)[1].skip for level in Level}
    assert skips[Level.FULL] == ""
    assert skips[Level.BASIC] == "left out at --level basic; it runs at full"


def test_basic_has_gradients_replica_sync_samplers_and_collectives() -> None:
    basic = [check for check in installed_checks() if check.level == Level.BASIC]
    assert RANKS_START in basic
    assert {"gradients", "replica_sync", "sampler", "collectives"} <= {check.family for check in basic}
    assert len(basic) < len(installed_checks()) / 3


def test_models_are_plain_at_basic() -> None:
    every = TYPICAL.but(model_features=ALL_MODEL_FEATURES)
    plain = promises_at_level(every, Level.BASIC).replica.model_features
    assert {"tied", "frozen", "sparse", "empty"}.isdisjoint(plain)
    assert "buffer" in plain
    assert promises_at_level(every, Level.STANDARD) == every
    assert FEATURE_LEVELS.keys() == ALL_MODEL_FEATURES


def test_a_verdict_says_what_its_level_has_left_out() -> None:
    laws = ["check_gradients_equal_the_large_batch_exactly", "check_random_training_programs_match_one_process"]
    verdicts = {v.check: v for v in check_adapter("numpy_sockets", [1], laws, profile="quick", level="basic")}
    basic, standard = (verdicts[name] for name in laws)
    assert (basic.status, standard.status) == ("passed", "skipped")
    assert "tied models, not at level basic" in basic.not_covered
    assert standard.reason == "left out at --level basic; it runs at standard"


def test_an_unknown_level_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown level 'basics'; did you mean basic"):
        check_adapter(MINIMAL, [1], level="basics")
