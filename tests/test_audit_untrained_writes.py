"""Lines that write to parameters which no optimizer holds, as the recorder sees them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ddpcheck.audit.event_journal import JournalReader  # noqa: E402  # it needs torch, see importorskip
from ddpcheck.audit.recorded_process import Run, RunSettings  # noqa: E402
from ddpcheck.audit.recorder import torch_random_draws, untrained_writes  # noqa: E402


def replaced(slow: Any, fast: Any) -> None:
    slow.data = 0.9 * slow.data + 0.1 * fast.data


@pytest.mark.parametrize(
    ("update", "found"),
    [
        (lambda slow, fast: slow.mul_(0.9).add_(fast, alpha=0.1), True),
        (lambda slow, fast: slow.data.lerp_(fast.data, 0.1), True),
        (lambda slow, fast: torch._foreach_lerp_([slow], [fast], 0.1), True),
        (lambda slow, fast: slow[2:].copy_(fast[2:]), True),
        (replaced, True),
        (lambda slow, fast: slow.clone().mul_(0.9), False),
        (lambda slow, fast: fast.add_(slow), False),
    ],
    ids=["in place", "data in place", "list", "part", "data replaced", "copy of it", "read"],
)
def test_writes_to_an_untrained_parameter(tmp_path: Path, update: Callable[[Any, Any], Any], found: bool) -> None:
    (tmp_path / "real").mkdir()
    run = Run(RunSettings(str(tmp_path), "real", ranks=1, steps=1, far=1), 0, str(Path(__file__).parent))
    slow, fast = (torch.nn.Parameter(torch.ones(8), requires_grad=False) for _ in range(2))
    torch_random_draws.install(run)
    slow.zero_()  # before training, as for an initial value
    run.started = run.trains = True
    line = sys._getframe().f_lineno + 1
    update(slow, fast)
    seen = untrained_writes.of(run)
    seen.name({"m0.weight": slow})
    seen.name({"m0.weight": slow})
    torch_random_draws.of(run).mode.__exit__(None, None, None)
    events = list(JournalReader(run.journal.folder).events())
    named = [event["names"] for event in events if event["kind"] == "written"]
    assert [list(each) for each in named] == [["m0.weight"]] * found
    lines = {event["number"]: (event["line"], event["callers"][:1]) for event in events if event["kind"] == "write"}
    wanted = update.__code__.co_firstlineno + (update is replaced)
    place = f"{Path(__file__).name}:"
    assert all(lines[n] == (f"{place}{wanted}", [f"{place}{line}"]) for each in named for n in each["m0.weight"])


def test_a_new_tensor_at_the_place_of_another_has_none_of_its_lines(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    run = Run(RunSettings(str(tmp_path), "real", ranks=1, steps=1, far=1), 0, str(tmp_path))
    run.started = run.trains = True
    seen = untrained_writes.of(run)
    values, trained = torch.ones(8), torch.ones(8, requires_grad=True)
    seen.see(torch.ops.aten.mul_.Tensor, (values, 2.0), values)
    seen.see(torch.ops.aten.mul.Tensor, (trained, 2.0), values)
    seen.name({"m0.weight": values})
    assert [event["kind"] for event in JournalReader(run.journal.folder).events()] == ["write"]
