"""The pytest plugin: options, and tests made from `parametrize_with_checks`.

This module is part of every pytest run where ddpcheck is installed. It imports pytest and one name, and does nothing until a
test is marked. Ranks are a fixture of module scope: they start once for an adapter and a world size, and end with its
last check; each xdist worker has its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ..storage.failures_folder import FAILURES_FOLDER
from . import RANKS

if TYPE_CHECKING:
    from ..audit.audit_in_tests import Audited
    from ..launchers.fork_servers import ForkServers
    from ..running.check_runner import CheckRunner

if "ddpcheck_properties" not in sys.modules:  # pytest warns about a module imported before its rewriting
    pytest.register_assert_rewrite("ddpcheck_properties")

_UNBOUND = pytest.StashKey[str]()
_HELP = "name the implementation with --ddp-adapter, as in: pytest --pyargs ddpcheck_properties --ddp-adapter my_ddp:adapter"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ddpcheck", "checks of data-parallel implementations")
    group.addoption(
        "--ddp-adapter",
        action="append",
        default=[],
        metavar="REF",
        help="implementation for tests that name none: a known name, module:attribute, or file.py:attribute; repeatable",
    )
    group.addoption(
        "--ddp-world-sizes",
        metavar="1,2,3",
        help="world sizes, instead of those that a test names. Default: those of the test, else of the profile",
    )
    group.addoption("--ddp-profile", default="default", metavar="NAME", help="quick, default or thorough")
    group.addoption("--ddp-level", default="standard", metavar="NAME", help="basic, standard or full")
    group.addoption(
        "--ddp-applicable-only",
        action="store_true",
        help="deselect checks that the adapter's promises or the level leave out; else they are skipped, with the reason",
    )
    group.addoption("--ddp-deadline", default="10", metavar="SECONDS", help="seconds until an operation counts as hung")
    group.addoption("--ddp-seed", metavar="N", help="draw other Jobs; else every run draws the same")
    group.addoption("--ddp-failures", default=FAILURES_FOLDER, metavar="DIR", help="folder for failing Jobs")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ddpcheck(...): made by ddpcheck.parametrize_with_checks")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("ddpcheck")
    if mark is None:
        return
    if "check" not in metafunc.fixturenames:
        raise pytest.Collector.CollectError(
            f"{metafunc.function.__name__} is made by parametrize_with_checks: give it the argument `check`, and call it"
        )
    wanted = dict(mark.kwargs)
    if wanted["adapters"] is None:
        wanted["adapters"] = metafunc.config.getoption("--ddp-adapter")
        if not wanted["adapters"]:
            metafunc.config.stash[_UNBOUND] = (
                f"{metafunc.definition.nodeid.partition('::')[0]} has no adapter to check; {_HELP}"
            )
    from .bound_checks import bound_checks

    try:
        cases = bound_checks(metafunc.config, **wanted)
    except ValueError as error:
        raise pytest.Collector.CollectError(str(error)) from None
    # scope: ranks are grouped by module; with a narrower one they would start for every check
    metafunc.parametrize((RANKS, "check"), cases, indirect=[RANKS], scope="module")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unbound = config.stash.get(_UNBOUND, None)
    if unbound is not None:
        raise pytest.UsageError(unbound)
    if config.getoption("--ddp-applicable-only"):
        _deselect_inapplicable(config, items)
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            ranks = _parameters(item).get(RANKS)
            if ranks is not None:  # --dist loadgroup keeps these together
                item.add_marker(pytest.mark.xdist_group(str(ranks)))


def _deselect_inapplicable(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove the tests of checks that do not apply. pytest counts them as deselected."""
    checks = [_parameters(item).get("check") if "ddpcheck" in item.keywords else None for item in items]
    applies = [check is None or check.item.applies for check in checks]
    config.hook.pytest_deselected(items=[item for item, kept in zip(items, applies, strict=True) if not kept])
    items[:] = [item for item, kept in zip(items, applies, strict=True) if kept]


def _parameters(item: pytest.Item) -> dict[str, Any]:
    call = getattr(item, "callspec", None)
    return {} if call is None else dict(call.params)


@pytest.fixture
def ddp_audit() -> Callable[..., Audited]:
    """Audits a training script: write `ddp_audit("train.py", "--epochs", "1", ranks=2).holds()` in a test."""
    from ..audit.audit_in_tests import audit

    return audit


@pytest.fixture(scope="session")
def ddpcheck_fork_servers() -> Iterator[ForkServers]:
    """The processes from which the ranks of all adapters are forked."""
    from ..launchers.fork_servers import ForkServers

    with ForkServers() as fork_servers:
        yield fork_servers


@pytest.fixture(scope="module")
def ddpcheck_ranks(request: pytest.FixtureRequest, ddpcheck_fork_servers: ForkServers) -> Iterator[CheckRunner]:
    """The ranks of one adapter at one world size. They start with the first check that uses them."""
    place = request.param
    with place.open(ddpcheck_fork_servers) as ranks:
        yield ranks
