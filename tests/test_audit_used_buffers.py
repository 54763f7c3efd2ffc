"""Buffers that the forward pass of training uses, and those that it only updates or draws anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ddpcheck.audit.event_journal import JournalReader  # noqa: E402  # it needs torch, see importorskip
from ddpcheck.audit.recorded_process import Run, RunSettings  # noqa: E402
from ddpcheck.audit.recorder import script_objects, torch_random_draws  # noqa: E402


class Without(torch.Tensor):  # type: ignore[misc]  # torch is untyped here
    """A tensor without a storage, as a DTensor."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*(each.inner if isinstance(each, cls) else each for each in args), **(kwargs or {}))


ONES, WEIGHT = torch.ones(8), torch.ones(8, requires_grad=True)


@pytest.mark.parametrize(
    ("use", "found"),
    [
        (lambda buffer: WEIGHT @ buffer, True),
        (lambda buffer: WEIGHT @ buffer.clone().detach(), True),
        (lambda buffer: (ONES - buffer[:1]) * WEIGHT, True),
        (lambda buffer: torch.cat([WEIGHT, buffer[:4]]), True),
        (lambda buffer: 0.9 * buffer + 0.1 * (ONES @ WEIGHT).detach(), False),
        (lambda buffer: buffer.add_((ONES @ WEIGHT).detach()), False),
        (lambda buffer: buffer[:4].copy_(ONES[:4]), False),
        (lambda buffer: WEIGHT * buffer.copy_(ONES), False),
        (lambda buffer: buffer[:4].copy_(ONES[:4]) + WEIGHT[4:], True),
        (lambda buffer: torch.cat([Without(ONES) * 2.0, buffer.detach()]), False),
    ],
    ids=[
        "product",
        "product with a copy",
        "normalised input",
        "list of operands",
        "new average",
        "update",
        "update of a part",
        "overwritten before",
        "updated in part, and used",
        "tensor without storage",
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_uses_of_a_buffer(tmp_path: Path, use: Callable[[Any], Any], found: bool, training: bool) -> None:
    (tmp_path / "real").mkdir()
    run = Run(RunSettings(str(tmp_path), "real", ranks=1, steps=1, far=1), 0, str(tmp_path))
    run.started = run.trains = True
    module = torch.nn.Module()
    module.register_buffer("queue", torch.ones(8))
    script_objects.of(run).modules.append(module)
    torch_random_draws.install(run)
    with torch.set_grad_enabled(training):
        use(module.queue)
    torch_random_draws.of(run).mode.__exit__(None, None, None)
    seen = [event["buffer"] for event in JournalReader(run.journal.folder).events() if event["kind"] == "used_buffer"]
    assert seen == ["queue"] * (found and training)
