"""The law of a data set's content: a sample is the same on all ranks, unless it is drawn anew each time."""

from __future__ import annotations

from collections import defaultdict

from ...causes.audit import data as causes
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged
from .passes import base_indices, loader_of, training_passes

_CHANCE = 1e-9
"""Samples that are changed at random may be alike each time a rank gets them, with this probability at most."""

Contents = dict[int, list[str]]
"""By index: the digests of a sample, one for each time that a rank got it."""


def samples_are_the_same_on_all_ranks(evidence: Evidence) -> LawVerdict:
    """In several epochs, a sampler gives a sample to one rank twice, and to several ranks. What a rank gets each time is
    compared first: augmented samples are not alike on one rank, either.
    """
    if evidence.ranks == 1:
        return not_judged("there is one rank")
    seen = 0
    why = "no training loader has a DistributedSampler"
    for key in sorted({key for key, _ in training_passes(evidence)}):
        if not all(_is_sharded(evidence, key, rank) for rank in range(evidence.ranks)):
            continue
        own = [_contents(evidence, key, rank) for rank in range(evidence.ranks)]
        again = [set(digests) for contents in own for digests in contents.values() if len(digests) > 1]
        if any(len(digests) > 1 for digests in again):
            why = "a sample differs each time that a rank gets it, as by random augmentation, or by padding to other lengths"
            continue
        shared = {index: {each[index][0] for each in own if index in each} for index in _common(own)}
        differ = [index for index, digests in shared.items() if len(digests) > 1]
        if not again or not shared:
            why = "no two ranks got the same sample" if again else "no rank got a sample twice"
            continue
        seen += len(shared)
        if differ and (1 - len(differ) / len(shared)) ** len(again) <= _CHANCE:
            return broken(
                f"{len(differ)} of {len(shared)} samples that come to several ranks are not the same on each",
                causes.SAMPLE_DIFFERS(
                    count=len(differ), size=len(shared), again=len(again), line=loader_of(evidence, key)["line"]
                ),
            )
    if not seen:
        return not_judged(why)
    return held(f"{seen} samples that came to several ranks are alike")


def _is_sharded(evidence: Evidence, key: str, rank: int) -> bool:
    """Whether a sampler deals the samples of one data set to the ranks, so that an index means the same on each."""
    return any(
        event["key"] == key and event["distributed"] and event["distributed"]["num_replicas"] == evidence.ranks
        for event in evidence.real.of(rank, "epoch")
    )


def _contents(evidence: Evidence, key: str, rank: int) -> Contents:
    found: Contents = defaultdict(list)
    for event in evidence.real.of(rank, "batch"):
        if event["key"] == key and event["indices"] and len(event["indices"]) == len(event["rows"]):
            for index, digest in zip(base_indices(evidence, key, rank, [event]), event["rows"], strict=True):
                found[index].append(digest)
    return found


def _common(own: list[Contents]) -> set[int]:
    """Indices that several ranks got."""
    return {index for place, contents in enumerate(own) for index in contents if any(index in o for o in own[:place])}
