"""The names that promises hold: operations, reductions, dtypes, features, scores."""

from __future__ import annotations

REDUCTIONS = frozenset({"sum", "mean", "min", "max", "prod"})
COLLECTIVES = frozenset({"all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier", "send_recv"})
COLLECTIVE_DTYPES = frozenset(
    {"float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
)
SCORES = frozenset({"accuracy", "auc", "f1_macro", "perplexity", "rmse"})
TRAINER_FEATURES = frozenset({"accumulation", "schedule", "best", "checkpoint", "checkpoint_on_rank_0", "exact_resume"})
MODEL_FEATURES = frozenset({"tied", "frozen", "branch", "batch_norm", "embedding", "scale", "buffer", "delay"})
RARE_TRAINER_FEATURES = frozenset({"early_stopping"})
RARE_FEATURES = frozenset(
    {
        *("mixed_dtypes", "strided", "empty", "sparse", "penalty", "activity", "auxiliary_head"),
        *("replaced_buffers", "replaced_parameters"),
    }
)
ALL_MODEL_FEATURES = MODEL_FEATURES | RARE_FEATURES
ALL_TRAINER_FEATURES = TRAINER_FEATURES | RARE_TRAINER_FEATURES
OPTIMIZERS = frozenset({"sgd", "adam"})
