"""An operation of a Job as a line for readers: which ranks do what. Works on plain data (dataclass_json.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from ..counted_nouns import counted, ranks_named

Plain = Mapping[str, Any]
"""An operation as plain data: its kind, and the fields that are not at their default."""


def in_words(operation: Plain) -> str:
    """The operation's kind, the fields that speak for themselves as name=value, and the others as phrases."""
    kind, told, phrases = operation["kind"], [operation["kind"]], []
    for name, value in operation.items():
        if phrase := PHRASES.get((kind, name)) or PHRASES.get(("", name)):
            phrases.append(phrase(value, operation))
        elif name != "kind":
            told.append(f"{name}={compact(value)}")
    return ": ".join(filter(None, (" ".join(told), "; ".join(filter(None, phrases)))))


def fields(data: Plain) -> str:
    """The fields of plain data as name=value."""
    return " ".join(f"{name}={compact(value)}" for name, value in data.items() if name != "kind")


def compact(value: Any) -> str:
    """Plain data in one line."""
    if isinstance(value, dict):
        inside = fields(value)
        return f"{value['kind']}({inside})" if "kind" in value else f"({inside})"
    if isinstance(value, list):
        return f"[{', '.join(compact(item) for item in value)}]"
    return str(value)


def runs(numbers: Sequence[int]) -> str:
    """Whole numbers, with runs joined: "0-3 7"."""
    parts = []
    for _, run in groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        first, *more = [number for _, number in run]
        parts.append(f"{first}-{more[-1]}" if len(more) > 1 else " ".join(map(str, (first, *more))))
    return " ".join(parts) or "none"


def by_rank(values: Sequence[Any], shown: Callable[[Any], str] = str) -> str:
    """A value for each rank: "0-3 on rank 0, none on ranks 1, 2"."""
    told: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        told.setdefault(shown(value), []).append(rank)
    return ", ".join(f"{text} on {ranks_named(ranks)}" for text, ranks in told.items())


def _numbers(values: Sequence[Any]) -> str:
    return " ".join(map(str, values)) or "none"


def _where_not_zero(counts: Sequence[int]) -> str:
    return ", ".join(f"{count} on rank {rank}" for rank, count in enumerate(counts) if count)


def _rows(indices: Sequence[int]) -> str:
    """Samples of a score; -1 is padding."""
    padding = sum(index < 0 for index in indices)
    return runs([index for index in indices if index >= 0]) + f" and {padding} of padding" * bool(padding)


def _batches(batches: Sequence[Sequence[int]]) -> str:
    return " then ".join(map(runs, batches)) or "no batch"


def _epoch(epoch: int | None) -> str:
    return "again without set_epoch" if epoch is None else str(epoch)


Phrase = Callable[[Any, Plain], str]


def _constant(text: str) -> Phrase:
    return lambda value, operation: text


_GENERATORS = "draws from its process's generators, and the next rank seeds its own"
PHRASES: Mapping[tuple[str, str], Phrase] = {
    ("", "samples"): lambda value, of: f"samples {by_rank(value, runs)}",
    ("", "group"): lambda value, of: f"in the group of {ranks_named(value)}",
    ("", "branches"): lambda value, of: f"branches {by_rank(value, _numbers)}",
    ("", "shuffle"): _constant("not shuffled"),
    ("", "drop_last"): _constant("the last, incomplete part is dropped"),
    ("", "in_place"): _constant("in place"),
    ("backward", "sync"): _constant("inside no_sync()"),
    ("backward", "second"): lambda value, of: f"a second forward pass on samples {by_rank(value, runs)}",
    ("backward", "weights"): lambda value, of: f"sample weights {by_rank(value, _numbers)}",
    ("backward", "interrupted"): lambda value, of: (
        f"then an exception of the training program leaves no_sync() on {ranks_named(value)}"
    ),
    ("backward", "broken"): lambda value, of: f"an exception ends it half-way on {ranks_named(value)}",
    ("predict", "idle"): _constant("also on ranks without samples"),
    ("zero_grad", "to_zeros"): _constant("existing gradients become zeros"),
    ("join", "batches"): lambda value, of: f"batches {by_rank(value, _batches)}",
    ("set_trainable", "layers"): lambda value, of: (
        f"{', '.join(value)} {'trained' if of.get('trainable', True) else 'frozen'} from now on"
    ),
    ("set_trainable", "trainable"): _constant(""),
    ("all_reduce", "wait"): _constant("asynchronous"),
    ("wait", "operation"): lambda value, of: f"for operation {value}",
    ("send_recv", "pairs"): lambda value, of: ", ".join(f"from rank {source} to rank {dest}" for source, dest in value),
    ("calls", "strided"): _constant("every other element of a larger array"),
    ("sample", "epochs"): lambda value, of: f"epochs {', '.join(map(_epoch, value))}",
    ("sample", "disturbed"): lambda value, of: f"between two readings rank {value} {_GENERATORS}",
    ("sample", "peeks"): lambda value, of: f"first reads samples, and begins the epoch again: {_where_not_zero(value)}",
    ("sample", "beside"): _constant("three other samplers are read before each reading"),
    ("sample", "retold"): _constant("each set_epoch comes after one with another epoch"),
    ("resume_sampling", "pieces"): lambda value, of: f"in pieces of {', '.join(map(str, value))} and the rest",
    ("resume_sampling", "told"): _constant("no set_epoch after load_state"),
    ("resume_sampling", "used"): _constant("the first sampler has read another epoch before"),
    ("resume_sampling", "at_once"): _constant("each loaded state is saved at once and loaded again"),
    ("draw", "epochs"): lambda value, of: f"epochs {', '.join(map(_epoch, value))}",
    ("draw", "extra"): lambda value, of: f"more local numbers first: {_where_not_zero(value)}",
    ("draw", "beside"): _constant("two other streams are drawn from in between"),
    ("draw", "one_by_one"): _constant("one call for each number"),
    ("disturb", "rank"): lambda value, of: f"rank {value} {_GENERATORS}",
    ("aggregate", "values"): lambda value, of: f"means {by_rank(value)}",
    ("aggregate", "counts"): lambda value, of: f"counts {by_rank(value)}",
    ("aggregate", "no_number"): lambda value, of: f"{value[1]} is NaN on rank {value[0]}",
    ("aggregate", "turned"): _constant("each rank begins with another name"),
    ("score", "indices"): lambda value, of: f"samples {by_rank(value, _rows)}",
    ("score", "poisoned"): lambda value, of: f"the first output of sample {value} is NaN",
    ("score", "far"): _constant("widely spread values"),
    ("score", "empty"): _constant("padding holds NaN"),
    ("train", "keep_best"): _constant("the best weights are kept"),
    ("train", "resume"): _constant("resumed from the folder"),
    ("train", "rank_0_only"): _constant("every rank but 0 has another folder"),
    ("train", "slow_disk"): _constant("rank 0's file system is slow"),
    ("sleep", "rank"): lambda value, of: f"rank {value} is late by {of['seconds']:g} s",
    ("sleep", "seconds"): _constant(""),
    ("raise", "rank"): lambda value, of: f"rank {value} raises an exception",
    ("kill", "rank"): lambda value, of: f"the process of rank {value} is killed",
    ("break_connections", "rank"): lambda value, of: f"the connections of rank {value} break",
    ("leave", "rank"): lambda value, of: f"an uncaught exception ends the program of rank {value}",
    ("leave", "close"): _constant("after close()"),
    ("on_ranks", "ranks"): lambda value, of: f"only {ranks_named(value)}",
    ("on_ranks", "operation"): lambda value, of: in_words(value),
    ("attempt", "operation"): lambda value, of: f"an exception is caught; {in_words(value)}",
    ("rounds", "operations"): lambda value, of: " | ".join(map(in_words, value)),
    ("short_reads", "on"): _constant("no longer"),
    ("small_buffers", "on"): _constant("no longer"),
    ("watch_collectives", "on"): _constant("no longer"),
    ("probe_gradients", "summed"): _constant("gradients are sums over ranks"),
    ("measure_steps", "synced"): _constant("inside no_sync()"),
    ("start", "order"): lambda value, of: f"{ranks_named(value)} enter connect() in this order, one after the other",
    ("start", "strangers"): _constant("foreign clients connect to every listening rank"),
    ("start", "short_reads"): _constant("reads and sends are cut short"),
    ("start", "in_place"): _constant("at the address of a world that was killed"),
    ("start", "neighbour"): _constant("beside another world of this adapter"),
    ("start", "hosts"): lambda value, of: f"as on hosts with {', '.join(map(str, value))} ranks",
    ("start", "own_folder"): _constant("with a temporary folder of its own"),
    ("start", "taken_ports"): _constant("ports that are released are taken at once"),
    ("data", "samples"): lambda value, of: counted(value, "sample"),
    ("data", "poisoned"): lambda value, of: f"{of.get('poison', 'nan')} in sample {_numbers(value)}",
    ("data", "poison"): _constant(""),
    ("data", "loud"): lambda value, of: f"large targets in sample {_numbers(value)}",
}
"""Words for a field, by the kind of its operation, or "" for all kinds. A function takes the value and the operation."""
