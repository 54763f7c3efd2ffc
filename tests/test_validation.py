"""Frequent errors in an adapter are reported before any rank starts, with the remedy."""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddpcheck import Adapter, Determinism, Facets, RankContext
from ddpcheck.causes import lifecycle
from ddpcheck.contract import TYPICAL
from ddpcheck.contract.validation import causes_of_facets, problems_of_adapter, problems_of_facets
from ddpcheck.running.start_diagnosis import hiding

PLACE = RankContext(0, 1, 0, 1)
PROMISED = TYPICAL.of_facets("collectives").but(operations=frozenset({"all_reduce"}))


class Alone:
    def all_reduce(self, array: Any, op: str = "sum", *, group: Any = None) -> Any:
        return array


def connect(context: RankContext) -> Facets:
    return Facets(rank=0, world_size=1, collectives=Alone())


RIGHT = Adapter("right", connect, PROMISED)
TAKES_NOTHING: Any = lambda: None  # noqa: E731  # typed as Any: a type checker would see the error under test
TAKES_TWO: Any = lambda context, port: None  # noqa: E731


def test_files_that_hide_pythons_own_modules_are_found(tmp_path: Path) -> None:
    for name in ("json.py", "adapter.py"):
        (tmp_path / name).write_text("")
    assert hiding([str(tmp_path), *sys.path[-2:], sysconfig.get_path("stdlib")]) == [tmp_path / "json.py"]


def test_valid_adapter_has_no_problem() -> None:
    assert problems_of_adapter(RIGHT) == []
    assert problems_of_facets(connect(PLACE), PROMISED, PLACE) == []


@pytest.mark.parametrize(
    ("adapter", "problem"),
    [
        (connect, "it is the function connect(), but should be an Adapter"),
        (Alone, "it is the class Alone, but should be an Adapter"),
        (Adapter, "it is the class Adapter, but should be an Adapter"),
        ("right", "it is a str, but should be an Adapter"),
        (replace(RIGHT, connect=TAKES_NOTHING), "its connect is called as connect(context), but takes ()"),
        (replace(RIGHT, connect=TAKES_TWO), "but takes (context, port)"),
    ],
)
def test_what_is_no_adapter_is_named(adapter: Any, problem: str) -> None:
    assert any(problem in found for found in problems_of_adapter(adapter))


@pytest.mark.parametrize(
    ("promises", "problem"),
    [
        ({"replica": "yes"}, "Capabilities.replica must be ReplicaPromises(...), got 'yes'"),
        ({"reductions": ["sum"]}, "Capabilities.collectives.reductions must be a set of str, got ['sum']"),
        ({"world_sizes": 2}, "Capabilities.world.world_sizes must be a set of int or None, got 2"),
        (
            {"determinism": "between_calls"},
            "Capabilities.world.determinism must be "
            + " or ".join(f"ddpcheck.Determinism.{level.name}" for level in Determinism)
            + ", got 'between_calls'",
        ),
        ({"gradient": "average"}, "Capabilities.replica.gradient must be 'mean' or 'sum', got 'average'"),
        ({"join": True}, "must be 'divide_by_initial_world' or 'divide_by_live_ranks' or None, got True"),
        ({"bundles_gradients": "yes"}, "Capabilities.replica.bundles_gradients must be True or False, got 'yes'"),
        ({"score_names": frozenset()}, "it promises the facet scores, but Capabilities.scores.score_names is empty"),
        ({"dtypes": frozenset()}, "but Capabilities.collectives.dtypes is empty"),
        ({"reductions": frozenset()}, "but Capabilities.collectives.reductions is empty"),
        (
            {"reductions": frozenset({"mean"}), "dtypes": frozenset({"int8"})},
            "has only mean, which needs a floating dtype",
        ),
    ],
)
def test_promises_of_a_wrong_kind_are_told(promises: dict[str, Any], problem: str) -> None:
    promised = TYPICAL.of_facets("collectives", "scores").but(**promises)
    problems = problems_of_adapter(replace(RIGHT, capabilities=promised))
    assert any(problem in found for found in problems), problems


def test_a_rank_of_the_import_and_a_world_of_its_own_have_causes() -> None:
    place = replace(PLACE, rank=1, world_size=2)
    right = replace(connect(PLACE), rank=1, world_size=2)
    assert causes_of_facets(right, place) == ()
    assert causes_of_facets(None, place) == ()
    assert causes_of_facets(replace(right, rank=0), place) == (lifecycle.RANK_READ_AT_IMPORT(),)
    assert causes_of_facets(replace(right, rank=0, world_size=1), place) == (lifecycle.WORLD_OF_ITS_OWN(),)


@pytest.mark.parametrize(
    ("facets", "problem"),
    [
        ({"rank": "0"}, "says that it is rank '0'"),
        (
            {"collectives": None},
            "Facets.collectives is None; return it from connect(), or remove its group of promises from Capabilities(...)",
        ),
        ({"collectives": Alone}, "Facets.collectives is the class Alone, but should be an object of it"),
    ],
)
def test_facets_that_do_not_fit_are_reported(facets: dict[str, Any], problem: str) -> None:
    problems = problems_of_facets(replace(connect(PLACE), **facets), PROMISED, PLACE)
    assert any(problem in found for found in problems), problems
