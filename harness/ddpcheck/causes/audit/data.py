"""Ranks read wrong samples."""

from ..cause import Kind

SAME_DATA = Kind(
    "same-data-on-every-rank",
    "Every rank reads the same data.",
    because="{how}",
    look="how samples are shared out at {line}, as a DistributedSampler does for a DataLoader",
    how=str,
    line=str,
)
RANKS_DRAW_ALIKE = Kind(
    "ranks-draw-alike",
    "The ranks draw the same samples, in the same order, in {count} of {size} batches.",
    because="They read different parts of the data otherwise, so they shuffle, or draw, by one seed.",
    look="the seeds in the data set of the loader made at {line}: mix in the rank, and the worker",
    count=int,
    size=int,
    line=str,
)
SHARDS_OVERLAP = Kind(
    "shards-overlap",
    "{count} of {size} samples of an epoch {count:goes|go} to more than one rank.",
    because="{how}",
    look="the split and the sampler behind the loader made at {line}",
    count=int,
    size=int,
    how=str,
    line=str,
)
SAMPLER_SEED_DIFFERS = Kind(
    "sampler-seed-differs",
    "The ranks' samplers have different seeds: {seeds}.",
    because="Each shuffles in an order of its own: {count} of {size} samples of an epoch {count:goes|go} to more than one rank.",
    look="{line}: give the sampler the same seed on every rank",
    certainty="certain",
    seeds=tuple[int, ...],
    count=int,
    size=int,
    line=str,
)
PART_OF_ANOTHER_SAMPLE = Kind(
    "part-of-another-sample",
    "{count} of {size} samples of rank {rank} have the {part} of another sample.",
    because="It is the one that the whole data set has at the sample's place in the rank's part of the data.",
    look="the data set behind the loader made at {line}: look it up by the sample's number in the whole data set",
    rank=int,
    part=str,
    count=int,
    size=int,
    line=str,
)
SAMPLE_DIFFERS = Kind(
    "sample-differs-between-ranks",
    "{count} of {size} samples that come to several ranks are not the same on each.",
    because="Samples are not random: {again:# that a rank got again was|# that a rank got again were} alike. So the ranks' data "
    "sets differ: as by a seed of the rank's own, or by labels that get their numbers from the order of a set.",
    look="what the data set behind the loader made at {line} computes with a seed, from the order of sets or files, from hashes, "
    "or from its rank's own samples",
    count=int,
    size=int,
    again=int,
    line=str,
)
SET_EPOCH_NOT_CALLED = Kind(
    "set-epoch-not-called",
    "Every epoch has the same order: set_epoch is not called.",
    because="Pass {first} and pass {second} over the loader both have epoch {epoch}.",
    look="sampler.set_epoch(epoch) before the loop over the loader made at {line}",
    certainty="certain",
    first=int,
    second=int,
    epoch=int,
    line=str,
)
SAMPLES_SPLIT_TWICE = Kind(
    "samples-split-twice",
    "The data set splits its samples over ranks, by its {attribute}, and its loader splits them again.",
    because="Each rank then gets 1/{ranks} of 1/{ranks} of the samples, and the others are never used.",
    look="{line}: give the framework's loader a data set that yields all samples on each rank",
    attribute=str,
    ranks=int,
    line=str,
)
PART_SPLIT_AGAIN = Kind(
    "part-split-again",
    "Each rank's part of the data set is split over the ranks again.",
    because="Its sampler knows the ranks, too: each gets 1/{ranks} of 1/{ranks} of the samples. The others are never used.",
    look="{line}: one data set for all ranks, or a sampler that goes through all of the rank's part",
    certainty="certain",
    ranks=int,
    line=str,
)
BATCHES_SPLIT_AGAIN = Kind(
    "batches-split-again",
    "The loop shares each rank's batches out over the ranks again.",
    because="Its sampler knows the ranks, too: each gets 1/{ranks} of the samples, and uses 1/{ranks} of its batches.",
    look="the loop at {line}: the condition by which a rank skips batches",
    certainty="certain",
    ranks=int,
    line=str,
)
SAMPLES_NEVER_USED = Kind(
    "samples-never-used",
    "{count} of {size} samples {count:is|are} in no rank's shard.",
    look="the split of the data behind the loader made at {line}",
    count=int,
    size=int,
    line=str,
)
DIFFERENT_NUMBERS_OF_BATCHES = Kind(
    "different-numbers-of-batches",
    "The ranks get different numbers of batches in an epoch: {counts}.",
    because="The rank with more batches waits for ever, or pairs its collectives with those of the next epoch.",
    look="the shards of the loader made at {line}; DistributedSampler gives equal ones",
    counts=tuple[int, ...],
    line=str,
)
