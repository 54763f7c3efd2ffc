"""Operations of torch that are recorded as random draws, and those that only look like one."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from ddpcheck.audit.event_journal import JournalReader  # noqa: E402  # it needs torch, see importorskip
from ddpcheck.audit.recorded_process import Run, RunSettings  # noqa: E402
from ddpcheck.audit.recorder import torch_random_draws  # noqa: E402


@pytest.mark.parametrize(("dropout", "drawn"), [(0.0, []), (0.5, ["bernoulli_"])])
def test_attention_draws_only_with_dropout(tmp_path: Path, dropout: float, drawn: list[str]) -> None:
    (tmp_path / "real").mkdir()
    run = Run(RunSettings(str(tmp_path), "real", ranks=1, steps=1, far=1), 0, str(tmp_path))
    run.started = run.trains = True
    torch_random_draws.install(run)
    query = torch.ones(2, 2, 4, 8)
    torch.nn.functional.scaled_dot_product_attention(query, query, query, dropout_p=dropout)
    torch_random_draws.of(run).mode.__exit__(None, None, None)
    found = [event["op"] for event in JournalReader(run.journal.folder).events() if event["kind"] == "draw"]
    assert found == drawn
