"""Where a script puts its own features among gathered ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ddpcheck.audit.event_journal import JournalReader  # noqa: E402  # it needs torch, see importorskip
from ddpcheck.audit.recorded_process import Run, RunSettings  # noqa: E402
from ddpcheck.audit.recorder import gathered_places, torch_random_draws  # noqa: E402


@pytest.mark.parametrize(
    ("arranged", "places"),
    [
        (lambda own, parts: [own, *parts[1:]], [0]),
        (lambda own, parts: [*parts[:2], own], [2]),
        (lambda own, parts: [own, *parts[:2]], []),
        (lambda own, parts: [own, own, parts[2]], []),
        (lambda own, parts: parts, []),
        (lambda own, parts: [own, *parts], []),
        (lambda own, parts: [own.detach(), *parts[1:]], []),
    ],
    ids=["first", "last", "moved to the front", "twice", "not there", "one more", "without gradient"],
)
def test_place_of_own_features(tmp_path: Path, arranged: Callable[[Any, Any], Any], places: list[int]) -> None:
    (tmp_path / "real").mkdir()
    run = Run(RunSettings(str(tmp_path), "real", ranks=3, steps=1, far=1), 0, str(tmp_path))
    torch_random_draws.install(run)
    parts, own = [torch.ones(2, 2) for _ in range(3)], torch.ones(2, 2, requires_grad=True)
    gathered_places.gathered(run, "all_gather", (parts, own))
    torch.cat(arranged(own, parts))
    torch_random_draws.of(run).mode.__exit__(None, None, None)
    seen = [event["place"] for event in JournalReader(run.journal.folder).events() if event["kind"] == "own_place"]
    assert seen == places
