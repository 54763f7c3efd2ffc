"""Training loops with wrong accumulation windows, epochs, or reported losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ddpcheck.contract.allowed_names import MODEL_FEATURES

from ...data_parallel.trainer import Trainer, Window
from ...numpy_network.terms import Penalised
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.trainers import TrainerEffect, in_place_of, result
from ..trainers import trainer

SAMPLES = "check_training_run_uses_every_sample"
LOSS = "check_training_run_reports_loss_over_all_samples"
WINDOWS = "check_training_run_with_accumulation_matches_one_process"
WINDOWS_LOSS = "check_training_run_with_accumulation_reports_global_loss"

_REPORTED = ("deepspeedai/DeepSpeed#1107", "huggingface/transformers#11919", "allenai/allennlp#4706")


def _as_full(run: Trainer, right: Callable[..., float], rows: Sequence[int], window: Window) -> float:
    return right(rows, window) * len(window) / run.task.micro_batches


# fmt: off
table(
    globals(),
    Fault("accum-mean-of-micro-means", "Micro-batches weigh equally, whatever their sizes.",
          where=always, caught_by=WINDOWS, cause="micro-batches-weigh-equally",
          effect=in_place_of("weight", lambda run, rows, window: 1 / len(window)),
          seen_in=("huggingface/transformers#34242", "huggingface/trl#6006", "OpenNMT/OpenNMT-py#2209"), world_size=1),
    Fault("accum-last-window-short", "A short accumulation window is divided by the full number of micro-batches.",
          where=always, caught_by=WINDOWS, cause="short-window-divided-as-full",
          effect=TrainerEffect("weight", _as_full),
          seen_in=("horovod/horovod#546 (review)",), world_size=1),
    Fault("accum-not-divided", "Micro-batches are summed instead of averaged.",
          where=always, caught_by=WINDOWS, cause="micro-batches-summed", world_size=1,
          effect=result("weight", lambda run, weight: 1.0)),
    Fault("reported-loss-k-times",
          "The reported loss of a window is the sum of its micro-batches' losses instead of their mean.",
          where=always, caught_by=WINDOWS_LOSS, cause="epoch-loss-summed-over-window",
          effect=in_place_of("summed", lambda run, losses, window: sum(losses) * sum(map(len, window))),
          seen_in=_REPORTED, world_size=1),
    Fault("reported-loss-of-last-micro-batch", "The reported loss of a window is that of its last micro-batch.",
          where=always, caught_by=WINDOWS_LOSS, world_size=1,
          effect=in_place_of("summed", lambda run, losses, window: losses[-1] * sum(map(len, window))),
          cause="epoch-loss-of-last-micro-batch", seen_in=_REPORTED),
)
# fmt: on


@trainer(
    "accum-penalty-for-every-micro-batch",
    WINDOWS,
    cause="auxiliary-terms-per-micro-batch",
    world_size=1,
    model_features=MODEL_FEATURES | {"penalty"},
)
class PenaltyForEveryMicroBatch(Trainer):
    """The penalty counts once for each micro-batch instead of once for each window."""

    def backward(self, rows: Sequence[int], weight: float) -> float:
        penalised = [term for term in self.replica._network.terms if isinstance(term, Penalised)]
        told = 0.0
        for term in penalised if rows else ():
            more = term.coefficient / weight - term.coefficient
            told += more / 2 * self.task.model.loss_scale * float(np.square(term.weight).sum())
            term.coefficient += more
        loss = super().backward(rows, weight) - told
        for term in penalised if rows else ():
            term.coefficient *= weight
        return loss


@trainer(
    "accum-tail-dropped",
    WINDOWS,
    seen_in=("deepspeedai/DeepSpeed#7439", "huggingface/accelerate#2831 (reported)"),
    cause="short-window-dropped",
)
class TailDropped(Trainer):
    """Micro-batches that do not fill a window at the end of an epoch are never stepped with."""

    def update(self, window: Window) -> float:
        if len(window) == self.task.micro_batches:
            return super().update(window)
        self.replica.zero_grad()
        return self.summed(self.gather(window), window)


@trainer(
    "accum-tail-leaks",
    WINDOWS,
    seen_in=("deepspeedai/DeepSpeed#7439", "huggingface/accelerate#2831 (reported)"),
    cause="short-window-leaks",
)
class TailLeaks(Trainer):
    """Micro-batches that do not fill a window at the end of an epoch join the next epoch's first window."""

    def update(self, window: Window) -> float:
        losses = self.gather(window)
        if len(window) == self.task.micro_batches:
            if self.task.max_norm is not None:
                self.replica.clip(self.task.max_norm)
            self.step()
            self.replica.zero_grad()
        return self.summed(losses, window)


@trainer("clip-every-microstep", WINDOWS, seen_in=("huggingface/diffusers#721",), cause="clipped-per-micro-batch")
class ClipEveryMicrostep(Trainer):
    """Gradients are clipped after each micro-batch, by the rank's own norm."""

    def backward(self, rows: Sequence[int], weight: float) -> float:
        loss = super().backward(rows, weight)
        if self.task.max_norm is not None:
            self.replica.clip(self.task.max_norm)
        return loss


@trainer(
    "log-mutates-loss",
    LOSS,
    WINDOWS_LOSS,
    seen_in=("Lightning-AI/pytorch-lightning#5759",),
    cause="epoch-loss-summed-over-ranks",
)
class LogMutatesLoss(Trainer):
    """Logging reduces the loss in place, so later readers get the sum."""

    def backward(self, rows: Sequence[int], weight: float) -> float:
        loss = np.array(super().backward(rows, weight))
        loss[...] = self.engine.collectives.all_reduce(loss)  # as a log does
        return float(loss)


class _Skipping:
    """A wrapper of a sampler that skips batches. It has no set_epoch()."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[int]:
        return iter(self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)


@trainer(
    "set-epoch-swallowed",
    SAMPLES,
    seen_in=("modelscope/ms-swift#9658", "modelscope/ms-swift#10050", "ray-project/ray#22108"),
    cause="set-epoch-ignored",
)
class SetEpochSwallowed(Trainer):
    """A wrapper around the sampler does not pass set_epoch() on."""

    def order(self, epoch: int) -> Sequence[int]:
        wrapper: Any = _Skipping(self.sampler)
        if hasattr(wrapper, "set_epoch"):
            wrapper.set_epoch(epoch)
        return list(wrapper)
