"""Mistakes of wrappers written in torch, and of communication hooks for DistributedDataParallel."""

from __future__ import annotations

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.modules import hook, wrapped_by

IN_FLIGHT = "check_collectives_in_flight_are_awaited_and_left_alone"
EXACT = "check_gradients_equal_the_large_batch_exactly"


# fmt: off
table(
    globals(),
    Fault("copied-back-late", "Reduced gradients are copied back one backward too late.",
          where=always, effect=wrapped_by("wrappers:CopiedBackLate"),
          caught_by=EXACT, cause="not-reduced"),
    Fault("hook-reduces-what-arrives",
          "A gradient hook reduces only the newest part, not the gradients accumulated before.",
          where=always, effect=wrapped_by("wrappers:ReducesWhatArrives"),
          caught_by="check_accumulation_counts_every_micro_batch_once", cause="accumulated-not-reduced"),
    Fault("hooks-on-replaced-parameters",
          "Hooks are set on biases that are replaced afterwards, so the new biases are not reduced.",
          where=always, effect=wrapped_by("wrappers:HooksReplacedOnes"),
          caught_by=EXACT, cause="not-reduced"),
    Fault("flat-buffer-not-cleared",
          "Send buffers are not cleared, so a rank without a gradient sends its previous one again.",
          where=always, effect=wrapped_by("wrappers:BufferNotCleared"),
          caught_by="check_unused_parameters_on_some_ranks_count_as_zero", cause="unused-rank-sends-old-mean",
          seen_in=("NVIDIA/Megatron-LM#6565",), unused_parameters="synchronised", unused_gradient="zero"),
    Fault("last-bucket-not-awaited", "The handle of the last, partial bucket is dropped, so its gradients are read too early.",
          where=always, effect=wrapped_by("wrappers:LastBucketNotAwaited"),
          caught_by=IN_FLIGHT, cause="handle-not-awaited", unused_parameters="synchronised", unused_gradient="zero"),
    Fault("slices-of-one-buffer", "Correct: buckets are slices of one buffer; one is packed while another is reduced.",
          where=always, effect=wrapped_by("wrappers:Overlapping"),
          unused_parameters="synchronised"),
    Fault("one-buffer-for-all-buckets", "Every bucket is packed into the same memory while the one before is reduced there.",
          where=always, effect=wrapped_by("wrappers:OneBufferForAllBuckets"),
          caught_by=IN_FLIGHT, cause="tensor-changed-in-flight", unused_parameters="synchronised"),
    Fault("divided-before-the-wait", "Sums are divided before the all-reduce is awaited: right, if it has already ended.",
          where=always, effect=wrapped_by("wrappers:DividedBeforeTheWait"),
          caught_by=IN_FLIGHT, cause="tensor-changed-in-flight", unused_parameters="synchronised", unused_gradient="zero"),
    Fault("ready-inside-no-sync", "Gradients inside no_sync count as ready, so the next backward reduces too early.",
          where=always, effect=wrapped_by("wrappers:ReadyInsideNoSync"),
          caught_by="check_gradients_are_the_mean_of_local_gradients", cause="reduced-early-after-no-sync",
          unused_parameters="synchronised"),
    Fault("comm-hook-divides-twice", "The communication hook divides gradients by the world size twice.",
          where=always, effect=hook("wrappers:divided_twice"),
          caught_by=EXACT, cause="divided-too-often"),
    Fault("comm-hook-sees-the-last-bucket", "The communication hook reduces the last bucket only.",
          where=always, effect=hook("wrappers:last_bucket_only"),
          caught_by=EXACT, cause="not-reduced"),
    Fault("comm-hook-float16", "The communication hook sends gradients as float16.",
          where=always,
          effect=hook("torch.distributed.algorithms.ddp_comm_hooks.default_hooks:fp16_compress_hook"),
          caught_by="check_gradients_are_the_mean_of_local_gradients", cause="rounded-as"),
    Fault("frozen-weights-cached", "Frozen weights are cached at construction, so loaded values are ignored.",
          where=always, effect=wrapped_by("wrappers:FrozenCached"),
          caught_by="check_resumed_training_matches_one_process", cause="loss-of-unloaded-values"),
    Fault("state-dict-broadcast", "Construction broadcasts the state dict, which leaves out buffers with persistent=False.",
          where=always, effect=wrapped_by("wrappers:BroadcastsTheStateDict"),
          caught_by="check_construction_broadcasts_buffers", cause="unsaved-buffer-not-sent"),
    Fault("tied-places-averaged-one-by-one", "Correct: each use of a tied weight is averaged separately.",
          where=always, effect=wrapped_by("wrappers:PlaceByPlace")),
    Fault("first-of-tied-layers-is-unused", "A tied weight receives the gradient of only one of its uses.",
          where=always, effect=wrapped_by("wrappers:OnePlaceOnly"),
          caught_by=EXACT, cause="never-written", seen_in=("pytorch/pytorch#46755",)),
)
# fmt: on
