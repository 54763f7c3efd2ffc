"""Terms of a loss, values that are carried from step to step, and hashes of strings, as the recorder sees them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")

from ddpcheck.audit.event_journal import JournalReader  # noqa: E402  # it needs torch, see importorskip
from ddpcheck.audit.recorded_process import Run, RunSettings  # noqa: E402
from ddpcheck.audit.recorder import data, loss_terms, models, string_hashes, torch_random_draws  # noqa: E402
from ddpcheck.audit.recorder.tensors import checksum, digest  # noqa: E402

Events = list[dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    (tmp_path / "real").mkdir()
    made = Run(RunSettings(str(tmp_path), "real", ranks=1, steps=3, far=3), 0, str(tmp_path))
    made.started = made.trains = True
    torch_random_draws.install(made)
    yield made
    torch_random_draws.of(made).mode.__exit__(None, None, None)


def events(run: Run, kind: str) -> Events:
    return [event for event in JournalReader(run.journal.folder).events() if event["kind"] == kind]


WEIGHT = torch.ones(8, requires_grad=True)


class Script:
    """A loop over steps that keeps a value. fresh: what is computed from the batch in each step."""

    def __init__(self) -> None:
        self.kept = torch.zeros(8)
        self.fresh = torch.ones(8)

    def average(self) -> None:
        """A running mean, made anew in each step."""
        self.kept = 0.9 * self.kept + 0.1 * self.fresh.exp()

    def draw(self) -> None:
        """Noise for the next step."""
        self.kept = torch.rand(8)

    def in_place(self) -> None:
        self.kept += self.fresh.exp()


def centred(script: Script) -> Any:
    return WEIGHT * (script.fresh.sin() - script.kept).softmax(0)


@pytest.mark.parametrize(
    ("use", "update", "found"),
    [
        (lambda script: WEIGHT * script.kept, Script.average, True),
        (lambda script: WEIGHT + script.kept, Script.in_place, True),
        (centred, Script.average, True),
        (lambda script: WEIGHT * script.fresh, Script.average, False),
        (lambda script: WEIGHT * script.kept, Script.draw, False),
        (lambda script: WEIGHT * script.kept, lambda script: None, False),
    ],
    ids=["product", "updated in place", "in what is multiplied", "used nowhere", "drawn anew", "never updated"],
)
def test_values_that_are_carried(run: Run, use: Callable[[Script], Any], update: Any, found: bool) -> None:
    script = Script()
    for step in range(2):
        use(script).sum()
        update(script)
        run.step = step + 1
    assert [event["step"] for event in events(run, "carried")] == [1] * found


def test_values_that_are_updated_after_a_step_are_carried(run: Run) -> None:
    script = Script()
    for step in range(2):
        (WEIGHT * script.kept).sum()
        script.fresh = (WEIGHT * 2.0).detach().clone()
        run.step = step + 1
        script.average()
    assert [event["step"] for event in events(run, "carried")] == [1]


def test_terms_of_a_loss(run: Run) -> None:
    count = 4.0
    mean, total = (WEIGHT * 2.0).mean(), (WEIGHT * 3.0).sum()
    loss = mean + total / count
    loss_terms.of(run).close(loss)
    (seen,) = events(run, "terms")
    shown = [(operation, value, parts, number) for _, operation, value, parts, number in seen["values"]]
    assert shown == [
        ("mean", 2.0, [], None), ("sum", 24.0, [], None), ("div", 6.0, [1], 4.0), ("add", 8.0, [0, 2], None),
    ]  # fmt: skip
    assert seen["loss"] == 3
    assert [number for _, _, number in seen["numbers"]] == [2.0, 3.0, 4.0]
    assert Path(__file__).name in seen["values"][0][0]
    loss_terms.of(run).close(WEIGHT.sum() * 2.0)
    assert len(events(run, "terms")[1]["values"]) == 2, "the terms of the first loss are gone"


@pytest.mark.parametrize(("value", "found"), [("a.tar", True), (17, False)])
def test_hashes_of_strings(run: Run, monkeypatch: pytest.MonkeyPatch, value: object, found: bool) -> None:
    monkeypatch.setattr(builtins, "hash", hash)
    monkeypatch.setenv("PYTHONHASHSEED", "20")
    string_hashes.install(run)
    assert hash(value) == hash(value)
    seen = events(run, "string_hash")
    assert [event["seed"] for event in seen] == ["20"] * found, "one for each line"


def test_checksums_are_those_of_the_bits() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.bool, torch.complex64):
        values = torch.ones(3, 5).to(dtype)
        assert checksum(values) == checksum(values.t().clone().t())
        changed = values.clone()
        changed[1, 2] = 0
        assert checksum(changed) != checksum(values)


@pytest.mark.parametrize("size", [8, 1 << 15])
def test_opposite_changes_change_a_checksum(size: int) -> None:
    """In a mean over ranks, elements may move by as many bits up as down."""
    values = torch.arange(1, size + 1, dtype=torch.int64)
    changed = values.clone()
    changed[0] += 1
    changed[-1] -= 1
    assert checksum(changed) != checksum(values)
    assert checksum(values.roll(2)) != checksum(values)


def test_digests_of_parameters_that_changed_since_their_step_are_made_anew(run: Run) -> None:
    parameter, seen = torch.nn.Parameter(torch.ones(4)), models.of(run)
    (after,) = seen.stepped([parameter])
    assert seen._digests({"0.0": parameter}) == {"0.0": after}
    parameter.data.clamp_(max=0.5)
    assert seen._digests({"0.0": parameter}) == {"0.0": digest(parameter)} != {"0.0": after}


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]  # torch is untyped here
    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.rank, 64, self.world))


class DataLoaderDispatcher:
    """Accelerate's, as far as its name goes: it makes a loader of torch's."""

    def splits(self, run: Run, dataset: Stream) -> str:
        return data._splits(run, torch.utils.data.DataLoader(dataset))


@pytest.mark.parametrize(("rank", "world", "found"), [(0, 2, "rank"), (1, 2, ""), (0, 1, "")])
def test_data_sets_that_know_their_rank(rank: int, world: int, found: str) -> None:
    run = cast("Run", SimpleNamespace(settings=RunSettings("", "real", ranks=2, steps=1, far=1), mirrors=False, rank=0))
    assert DataLoaderDispatcher().splits(run, Stream(rank, world)) == found
    assert data._splits(run, torch.utils.data.DataLoader(Stream(rank, world))) == ""


@pytest.mark.parametrize(("size", "expected"), [(5, 17774907581530639283), (100_001, 7080087961236330405)])
def test_a_checksum_is_the_same_in_every_process(size: int, expected: int) -> None:
    """Checksums of ranks are compared, and hash() of bytes differs between processes."""
    assert checksum(torch.arange(float(size))) == expected
