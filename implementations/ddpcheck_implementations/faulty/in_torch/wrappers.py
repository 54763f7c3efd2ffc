"""Mistakes of wrappers that are written in torch, and of communication hooks for its DistributedDataParallel."""

from __future__ import annotations

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.modules import hook, wrapped_by

EXACT = "check_gradients_equal_the_large_batch_exactly"


# fmt: off
table(
    globals(),
    Fault("copied-back-late", where=always, effect=wrapped_by("torch_mistakes:CopiedBackLate"),
          caught_by=EXACT, cause="not-reduced"),
    Fault("hook-reduces-what-arrives", where=always, effect=wrapped_by("torch_mistakes:ReducesWhatArrives"),
          caught_by="check_accumulation_counts_every_micro_batch_once", cause="accumulated-not-reduced"),
    Fault("hooks-on-replaced-parameters", where=always, effect=wrapped_by("torch_mistakes:HooksReplacedOnes"),
          caught_by=EXACT, cause="not-reduced"),
    Fault("checkpointing-moves-statistics", where=always, effect=wrapped_by("torch_mistakes:ComputedAnew"),
          caught_by="check_rank_0_running_statistics_follow_its_own_batches", cause="statistics-moved-twice"),
    Fault("flat-buffer-not-cleared", where=always, effect=wrapped_by("torch_mistakes:BufferNotCleared"),
          caught_by="check_unused_parameters_on_some_ranks_count_as_zero", cause="unused-rank-sends-old-mean",
          seen_in=("NVIDIA/Megatron-LM#6565",), unused_parameters="synchronised", unused_gradient="zero"),
    Fault("comm-hook-divides-twice", where=always, effect=hook("torch_mistakes:divided_twice"),
          caught_by=EXACT, cause="divided-too-often"),
    Fault("comm-hook-sees-the-last-bucket", where=always, effect=hook("torch_mistakes:last_bucket_only"),
          caught_by=EXACT, cause="not-reduced"),
    Fault("comm-hook-float16", where=always,
          effect=hook("torch.distributed.algorithms.ddp_comm_hooks.default_hooks:fp16_compress_hook"),
          caught_by="check_gradients_are_the_mean_of_local_gradients", cause="rounded-as"),
    Fault("frozen-weights-cached", where=always, effect=wrapped_by("torch_mistakes:FrozenCached"),
          caught_by="check_resumed_training_matches_one_process", cause="loss-of-unloaded-values"),
    Fault("tied-places-averaged-one-by-one", where=always, effect=wrapped_by("torch_mistakes:PlaceByPlace")),
    Fault("first-of-tied-layers-is-unused", where=always, effect=wrapped_by("torch_mistakes:OnePlaceOnly"),
          caught_by=EXACT, cause="never-written", seen_in=("pytorch/pytorch#46755",)),
)
# fmt: on
