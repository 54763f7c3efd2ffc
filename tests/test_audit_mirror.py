"""Parts of the mirror: a group of identical ranks, joined batches, digests, factors of losses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402  # it needs torch, see importorskip

from ddpcheck.audit.mirror import group  # noqa: E402
from ddpcheck.audit.mirror.batches import recorded_key  # noqa: E402
from ddpcheck.audit.mirror.large_batch import Misfit, put_together  # noqa: E402
from ddpcheck.audit.recorder import loss_factors  # noqa: E402
from ddpcheck.audit.recorder.tensors import SAMPLED, digest, nudged, sample  # noqa: E402

SIZE = 3


@pytest.fixture(scope="module")
def world() -> Iterator[None]:
    group.install(None)  # type: ignore[arg-type]  # install() does not use the run
    group.start(dist.init_process_group, SIZE)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("op", "wanted"),
    [("SUM", 6.0), ("AVG", 2.0), ("PRODUCT", 8.0), ("MIN", 2.0), ("MAX", 2.0)],
)
def test_reductions_of_identical_ranks(op: str, wanted: float) -> None:
    x = torch.tensor([2.0])
    dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
    assert x.item() == wanted


@pytest.mark.usefixtures("world")
def test_other_collectives_of_identical_ranks() -> None:
    assert (dist.get_rank(), dist.get_world_size()) == (0, SIZE)
    x = torch.tensor([1.0, 2.0])
    dist.broadcast(x, 0)
    parts = [torch.empty(2) for _ in range(SIZE)]
    dist.all_gather(parts, x)
    assert all(torch.equal(part, x) for part in parts)
    whole = torch.empty(2 * SIZE)
    (getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor)(whole, x)
    assert torch.equal(whole, x.repeat(SIZE))
    own = torch.empty(2)
    (getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor)(own, torch.arange(6.0))
    assert own.tolist() == [0.0, 3.0]
    objects: list[Any] = [None] * SIZE
    dist.all_gather_object(objects, {"a": 1})
    assert objects == [{"a": 1}] * SIZE
    dist.barrier()


@pytest.mark.usefixtures("world")
def test_ddp_averages_identical_ranks() -> None:
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1)
    x = torch.rand(4, 3)
    net(x).sum().backward()
    alone = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    torch.nn.parallel.DistributedDataParallel(net)(x).sum().backward()
    for p, wanted in zip(net.parameters(), alone, strict=True):
        torch.testing.assert_close(p.grad, wanted, rtol=1e-6, atol=0)


@dataclass
class Batch:
    x: Any
    names: list[str]


def test_nested_batches_put_together() -> None:
    def batch(size: int, start: int) -> dict[str, Any]:
        x = torch.arange(start, start + size)
        return {"x": x, "time_first": torch.stack([x, x]), "of": Batch(x + 1, [str(n) for n in x.tolist()]), "pad": 0}

    made = put_together([batch(2, 0), batch(3, 2)], (2, 3))
    assert made["x"].tolist() == [0, 1, 2, 3, 4]
    assert made["time_first"].shape == (2, 5)
    assert made["of"].x.tolist() == [1, 2, 3, 4, 5]
    assert made["of"].names == ["0", "1", "2", "3", "4"]
    assert made["pad"] == 0
    rolled = put_together([batch(2, 0), batch(3, 2)], (2, 3), 1)
    assert rolled["x"].tolist() == [4, 0, 1, 2, 3]
    assert rolled["of"].names == ["4", "0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 4)),
        ([torch.zeros(2), 1.0], [torch.zeros(2), 2.0]),
        ({"x": torch.zeros(2)}, {"x": torch.zeros(2), "y": torch.zeros(2)}),
    ],
)
def test_batches_that_do_not_fit(a: Any, b: Any) -> None:
    with pytest.raises(Misfit):
        put_together([a, b], (2, 2))


def test_digests() -> None:
    x = torch.arange(6.0)
    assert digest(x) == digest(x.clone())
    assert len({digest(x), digest(x.reshape(2, 3)), digest(x.double()), digest(-x)}) == 4
    assert digest(torch.tensor(0.0)) != digest(torch.tensor(-0.0))
    assert sample(torch.arange(4.0 * SAMPLED)).numel() == SAMPLED
    assert sample(x).tolist() == x.tolist()


@pytest.mark.parametrize(
    ("scaled", "scale"),
    [
        (lambda x: x.mean() / 4, 0.25),
        (lambda x: 0.5 * x.mean(), 0.5),
        (lambda x: x.sum() / torch.tensor(8.0), 0.125),
        (lambda x: (x.mean() / 4) * 1024, 256.0),
        (lambda x: x.mean(), 1.0),
    ],
)
def test_the_scale_of_a_loss(scaled: Any, scale: float) -> None:
    assert loss_factors.described(scaled(torch.ones(3, requires_grad=True)))["scale"] == scale


def test_the_scale_of_a_loss_that_a_wrapper_gives_out() -> None:
    """DistributedDataParallel puts a node behind each output, in their order."""

    class _DDPSink(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *outputs: Any) -> Any:
            return tuple(each.clone() for each in outputs)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients

    x = torch.ones(3, requires_grad=True)
    _, loss = _DDPSink.apply(x.exp(), x.sum() / 8)  # type: ignore[no-untyped-call]
    seen = loss_factors.described(loss * 2)
    assert (seen["scale"], seen["root"]) == (0.25, "Sum")


def test_nudged_values_differ_in_the_last_place_and_flags_stay() -> None:
    values = torch.tensor([[0.0, 1.0], [0.3, -0.7], [0.3, 5.5]])
    moved = nudged(values)
    assert torch.equal(moved == values, torch.tensor([[True, True], [False, False], [False, False]]))
    assert (moved - values).abs().max() <= torch.finfo(torch.float32).eps * 4
    assert nudged(torch.arange(3)).tolist() == [0, 1, 2]
    assert moved.is_contiguous()


@pytest.mark.parametrize(
    ("used", "key", "size", "wanted"),
    [
        (["a#1"], "a#1", 8, "a#1"),  # the same loader
        (["b#1"], "b#1", 8, "a#1"),  # made again at another line, first in use
        (["b#1", "c#1"], "c#1", 20, "a#2"),
        (["b#1"], "b#1", 9, "b#1"),  # another data set
        (["b#1", "c#1", "d#1"], "d#1", 8, "d#1"),
    ],
)
def test_recreated_loaders_are_matched_by_order(used: list[str], key: str, size: int, wanted: str) -> None:
    made = [{"kind": "loader", "key": "a#1", "size": 8}, {"kind": "loader", "key": "a#2", "size": 20}]
    gone_through = [{"kind": "epoch", "key": each} for each in ("a#1", "a#2", "a#2")]
    assert recorded_key([*made, *gone_through], used, key, size) == wanted
