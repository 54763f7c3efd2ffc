"""Records the batches of DataLoaders, the indices behind them, epochs and samplers.

In a mirror run, a loader yields the batches of all ranks of the real run at this position, put together, and loads
nothing.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, Subset, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import ddpcheck.audit

from ..mirror.batches import MirroredBatches, lengths, marked_batch
from ..recorded_process import Run
from . import batch_values, compared_steps
from .patching import line_that_makes, replace
from .tensors import children, copied, digest_of_nest, plain, walk

_KEPT_BYTES = 512 << 20
_DIGESTED_BYTES = 64 << 20
_ROWS = 1024
_FRAMES = 12
_DEALT_OUT, _DISPATCHER = "IterableDatasetShard", "DataLoaderDispatcher"
"""Accelerate's data set and loader that deal the samples of an iterable data set out to the ranks."""
_SUBSET = 200_000
_UNTRAINED_BATCHES = 200
"""The most batches in one pass of a loader from which no batch was trained on."""


class Loader:
    """The properties of one DataLoader. Its key is the line that made it, and the number made by that line before."""

    def __init__(self, run: Run, number: int, key: str) -> None:
        self.run: Run = run
        self.number: int = number
        self.key: str = key
        self.passes = 0
        self.trained = False
        self.batches: int | None = None
        """Of one pass, if the loader knows."""


class Loaders:
    def __init__(self, run: Run) -> None:
        self.run = run
        self._by_id: dict[int, Loader] = {}
        self._made: dict[str, int] = {}
        self.marked = 0

    def add(self, loader: Any) -> Loader:
        line = self.run.line()
        count = self._made[line] = self._made.get(line, 0) + 1
        made = self._by_id[id(loader)] = Loader(self.run, len(self._by_id), f"{line}#{count}")
        return made

    def of(self, loader: Any) -> Loader:
        return self._by_id.get(id(loader)) or self.add(loader)


class Batches:
    """The iterator of a DataLoader, in a real run."""

    def __init__(self, run: Run, loader: Loader, source: Any) -> None:
        self._run, self._loader, self._source = run, loader, source
        self._pass = loader.passes
        self._given = 0
        self._values = batch_values.BatchValues()
        self._step_before = run.step
        loader.passes += 1

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __next__(self) -> Any:
        run, loader = self._run, self._loader
        if run.step > self._step_before and not loader.trained:
            loader.trained = True
            run.loaders += 1
        if (run.cut and loader.trained and self._pass == 0) or (
            not loader.trained and self._given >= _UNTRAINED_BATCHES
        ):
            self._ended(cut=True)
            raise StopIteration
        run.loading += 1
        try:
            batch = next(self._source)
        except StopIteration:
            self._ended(cut=False)
            raise
        finally:
            run.loading -= 1
        queue = getattr(self._source, "_ddpcheck_indices", None)
        indices = queue.popleft() if queue else None
        size = note_batch(run, batch, loader.number, loader.key, self._pass, self._given, indices)
        batch_values.begin_batch(run, self._values, size)
        self._given += 1
        if loader.trained and self._given == loader.batches:
            compared_steps.of(run).epoch()
        return batch

    def _ended(self, *, cut: bool) -> None:
        run = self._run
        batch_values.end_pass(run)
        run.note(
            "epoch_end",
            loader=self._loader.number,
            key=self._loader.key,
            passed=self._pass,
            batches=self._given,
            cut=cut,
            step=run.step,
            pending=run.backwards,
            trained=self._loader.trained,
            sizes=sorted(set(self._values.sizes), reverse=True),
            means=self._values.means(),
            line=run.line(),
            callers=run.callers(),
        )


def note_batch(run: Run, batch: Any, number: int, key: str, passed: int, given: int, indices: Any = None) -> int:
    """Record a batch that a rank of the real run was given; returns the number of its samples."""
    run.started = True
    size = samples_in(batch, indices)
    rows = rows_of(batch, size)
    kept = ""
    if run.full and run.journal.written < _KEPT_BYTES:
        kept = f"batch-{number}-{passed}-{given}"
        run.journal.keep(kept, copied(batch))
    run.note(
        "batch",
        loader=number,
        key=key,
        passed=passed,
        number=given,
        step=run.step,
        size=size,
        indices=indices if isinstance(indices, list) and all(isinstance(each, int) for each in indices) else None,
        digest=digest_of_batch(batch, size, rows),
        rows=rows,
        kept=kept,
        grad=torch.is_grad_enabled(),
        line=run.line(),
    )
    return size


def rows_of(batch: Any, size: int) -> list[str]:
    """A digest for each sample, over its row in every tensor; empty for large batches."""
    tensors: list[torch.Tensor] = []
    walk(batch, tensors.append, lambda other: None)
    fitting = [plain(each) for each in tensors if _fits(each, size)]
    if not fitting or size > _ROWS:
        return []
    return [digest_of_nest([each[row] for each in fitting]) for row in range(size)]


def digest_of_batch(batch: Any, size: int, rows: list[str]) -> str:
    """Of all tensors, of which those with a row for each sample have their digests already."""
    if not rows:
        return digest_of_nest(batch)
    rest: list[Any] = [rows]

    def add(tensor: torch.Tensor) -> None:
        if not _fits(tensor, size):
            rest.append(tensor)

    walk(batch, add, rest.append)
    return digest_of_nest(rest)


def _fits(tensor: torch.Tensor, size: int) -> bool:
    return tensor.dim() > 0 and tensor.shape[0] == size


def samples_in(batch: Any, indices: Any = None) -> int:
    """The number of samples in a batch: by its indices, or by the first dimension of its first tensor."""
    if isinstance(indices, list):
        return len(indices)
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 1
    for each in children(batch):
        found = samples_in(each)
        if found:
            return found
    return 0


def install(run: Run) -> None:
    loaders = Loaders(run)

    def make_init(original: Any) -> Any:
        def make(self: Any, *args: Any, **kwargs: Any) -> None:
            if run.settings.no_gpu:
                kwargs["pin_memory"] = False
            original(self, *args, **kwargs)
            loader = loaders.add(self)
            described = _described(self)
            loader.batches = described["batches"]
            run.note(
                "loader", loader=loader.number, key=loader.key, line=run.line(), splits=_splits(run, self), **described
            )

        return make

    def make_iter(original: Any) -> Any:
        def begin(self: Any) -> Any:
            if run.loading:
                return original(self)
            loader = loaders.of(self)
            if loader.trained:
                compared_steps.of(run).epoch()
            run.note(
                "epoch", loader=loader.number, key=loader.key, passed=loader.passes, step=run.step, **_sampler(self)
            )
            if run.mirrors:
                loader.passes += 1
                return MirroredBatches(run, loader.key, loader.passes - 1, self)
            run.loading += 1
            try:
                source = original(self)
            finally:
                run.loading -= 1
            return Batches(run, loader, source)

        return begin

    def make_next_index(original: Any) -> Any:
        def _next_index(self: Any) -> Any:
            index = original(self)
            self.__dict__.setdefault("_ddpcheck_indices", deque()).append(list(index) if _many(index) else index)
            return index

        return _next_index

    def make_len(original: Any) -> Any:
        def length(self: Any) -> int:
            known = run.mirrors and _length_in_real_run(run, loaders.of(self).key)
            return int(known) if known else int(original(self))

        return length

    def make_set_epoch(original: Any) -> Any:
        def set_epoch(self: Any, epoch: int) -> None:
            run.note("set_epoch", epoch=int(epoch), step=run.step, line=run.line())
            original(self, epoch)

        return set_epoch

    def make_sampler_init(original: Any) -> Any:
        def make(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            self._ddpcheck_line = line_that_makes(self, run.root)

        return make

    replace(DataLoader, "__init__", make_init)
    replace(DistributedSampler, "__init__", make_sampler_init)
    replace(DataLoader, "__iter__", make_iter)
    replace(DataLoader, "__len__", make_len)
    replace(_BaseDataLoaderIter, "_next_index", make_next_index)
    replace(DistributedSampler, "set_epoch", make_set_epoch)
    ddpcheck.audit._marked[:] = [lambda batch: _marked(run, loaders, batch)]


def _marked(run: Run, loaders: Loaders, batch: Any) -> Any:
    number = loaders.marked
    loaders.marked += 1
    if not run.mirrors:
        note_batch(run, batch, -1, "marked", 0, number)
        return batch
    return marked_batch(run, number)


def _many(index: Any) -> bool:
    return isinstance(index, (list, tuple)) or hasattr(index, "__iter__")


def _length_in_real_run(run: Run, key: str) -> int | None:
    return lengths(run).get(key)


def _described(loader: Any) -> dict[str, Any]:
    iterable = isinstance(loader.dataset, IterableDataset)
    sampler = getattr(loader, "sampler", None)
    try:
        size = len(loader.dataset)
    except (TypeError, NotImplementedError):
        size = None
    try:
        batches = None if iterable else len(loader)
    except (TypeError, NotImplementedError):
        batches = None
    base, places = _base(loader.dataset)
    return {
        "base": type(base).__name__,
        "base_size": len(base) if hasattr(base, "__len__") else None,
        "content": _content(base),
        "subset": places if places is not None and len(places) <= _SUBSET else None,
        "shuffles": isinstance(sampler, RandomSampler),
        "dataset": type(loader.dataset).__name__,
        "iterable": iterable,
        "size": size,
        "batches": batches,
        "batch_size": loader.batch_size,
        "drop_last": bool(loader.drop_last),
        "workers": loader.num_workers,
        "sampler": type(sampler).__name__,
        "batch_sampler": type(getattr(loader, "batch_sampler", None)).__name__,
    }


def _splits(run: Run, loader: Any) -> str:
    """The attribute that tells an iterable data set its rank, if its loader deals its samples out to the ranks, too."""
    data = loader.dataset
    if type(data).__name__ == _DEALT_OUT:
        data = getattr(data, "dataset", None)
    elif not _made_by_dispatcher():
        return ""
    if run.settings.ranks == 1 or run.mirrors:
        return ""
    numbers = (
        {name: value for name, value in vars(data).items() if type(value) is int} if hasattr(data, "__dict__") else {}
    )
    knows_world = any("world" in name or "replicas" in name for name in numbers if numbers[name] == run.settings.ranks)
    return next((name for name in numbers if knows_world and "rank" in name and numbers[name] == run.rank), "")


def _made_by_dispatcher() -> bool:
    """Whether Accelerate's dispatcher makes this loader: its first rank reads all batches, and deals them out."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is not None and type(frame.f_locals.get("self")).__name__ == _DISPATCHER:
            return True
        frame = frame.f_back if frame is not None else None
    return False


def _base(data: Any) -> tuple[Any, list[int] | None]:
    """The data set below Subsets, and the indices that they select."""
    places: list[int] | None = None
    while isinstance(data, Subset):
        own = [int(each) for each in data.indices]
        places = own if places is None else [own[each] for each in places]
        data = data.dataset
    return data, places


def _content(data: Any) -> str:
    """A digest of a data set that holds its samples as tensors; empty for other data sets, and for large ones."""
    if not isinstance(data, TensorDataset) or sum(each.nbytes for each in data.tensors) > _DIGESTED_BYTES:
        return ""
    return digest_of_nest(data.tensors)


def _sampler(loader: Any) -> dict[str, Any]:
    """The sampler's state at the start of an epoch, if it distributes samples over ranks."""
    sampler = getattr(loader, "sampler", None)
    inner = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    for each in (sampler, inner):
        if isinstance(each, DistributedSampler):
            names = ("num_replicas", "rank", "epoch", "shuffle", "seed", "drop_last", "total_size", "num_samples")
            state = {name: getattr(each, name) for name in names}
            return {"distributed": {**state, "line": getattr(each, "_ddpcheck_line", "")}}
    return {"distributed": None}
