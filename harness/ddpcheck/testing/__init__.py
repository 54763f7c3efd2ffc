"""The checks in a user's own pytest file:

    from ddpcheck import parametrize_with_checks
    from my_ddp.adapter import adapter

    @parametrize_with_checks([adapter], world_sizes=[1, 2, 3], expected_failures={"check_name": "reason"})
    def test_my_ddp(check):
        check()

This gives one test for each adapter, world size and check, named adapter-w2-check_name. The decorator only sets a mark,
since ranks also import the user's file if it defines the adapter; the plugin (pytest_plugin.py) makes the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from ..contract.adapter import Adapter

F = TypeVar("F", bound=Callable[..., Any])
RANKS = "ddpcheck_ranks"


def parametrize_with_checks(
    adapters: Iterable[Adapter | str] | None = None,
    world_sizes: Iterable[int] | None = None,
    checks: Iterable[str] | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> Callable[[F], F]:
    """Make a test of each check; the test function has one argument, `check`, and calls it.

    adapters: adapters or references; None takes those of --ddp-adapter, or a usage error if that is missing.
    world_sizes: None takes those of the profile; --ddp-world-sizes replaces both. checks: names, families or parts of names.
    expected_failures: reason by check name (or name@2,3 for world sizes); strict, as pytest's xfail.
    """
    mark = pytest.mark.ddpcheck(
        adapters=None if adapters is None else list(adapters),
        world_sizes=None if world_sizes is None else list(world_sizes),
        checks=list(checks or ()),
        expected_failures=dict(expected_failures or {}),
    )

    def decorate(function: F) -> F:
        decorated: F = mark(pytest.mark.usefixtures(RANKS)(function))
        return decorated

    return decorate
