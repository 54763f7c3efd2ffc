"""Expected details of a fault's failure beside the id of its cause: parameters of the cause, and numbers in the
headline.
"""

from __future__ import annotations

from collections.abc import Mapping

from ddpcheck.causes import Parameter
from ddpcheck.verdict import Diagnosis
from ddpcheck_implementations.faulty import Registered

PARAMETERS: Mapping[str, Mapping[str, Parameter]] = {
    "permissions-of-new-files": {"settings": ("the permissions of new files",)},
    "logging-switched-off": {"settings": ("the level, or handlers, of the root logger",)},
    "output-of-rank-0-only": {"settings": ("sys.stdout, or sys.stderr",)},
    "print-of-others-replaced": {"settings": ("print()",)},
    "print-precision-changed": {"settings": ("NumPy's print options",)},
    "limit-of-descriptors-lowered": {"settings": ("limits of resources",)},
    "alarm-left-set": {"settings": ("the timer of alarms",)},
    "errors-of-numpy-switched-off": {"settings": ("NumPy's handling of floating-point errors",)},
    "warnings-switched-off": {"settings": ("the filters of warnings",)},
    "interrupts-ignored": {"settings": ("the handler of SIGINT",)},
    "environment-changed": {"settings": ("the environment variable OMP_NUM_THREADS",)},
    "timeout-of-all-sockets": {"settings": ("the default timeout of sockets",)},
    "folder-changed-for-a-log": {"settings": ("the working directory",)},
    "sets-the-default-dtype": {"settings": ("torch's default dtype",)},
    "warnings-switched-off-by-making": {"settings": ("the filters of warnings",)},
    "anomalies-looked-for-from-then-on": {"settings": ("torch's detection of anomalies",)},
    "tags-from-the-global-generator": {"generators": ("numpy.random",)},
    "seeds-the-global-generator": {"generators": ("numpy.random",)},
    "streams-of-the-global-generator": {"generators": ("random",)},
    "seeds-in-each-forward": {"generators": ("torch's generator",)},
    "torch-seeded-by-the-wrapper": {"generator": "torch's generator"},
    "thread-for-each-call": {"resource": "threads"},
    "descriptor-for-each-group": {"resource": "descriptors"},
    "results-kept": {"held": "arrays"},
    "orders-kept": {"held": "small objects"},
    "epoch-shared-by-samplers": {"state": "epoch"},
    "order-shared-by-samplers": {"state": "order or generator"},
    "last-rank-stays-behind": {"ranks": (2,)},
    "indices-in-16-bits": {"place": "order", "bits": 16},
    "rest-in-sixteen-bits": {"place": "state", "bits": 16},
    "epochs-in-pairs": {"part": "epoch", "first": 1, "second": 2},
    "epoch-in-eight-bits": {"part": "epoch", "first": 2, "second": 258},
    "epoch-in-float16": {"part": "epoch", "first": 2048, "second": 2049},
    "seed-in-eight-bits": {"part": "seed"},
    "seed-in-float32": {"part": "seed"},
    "seed-in-31-bits": {"part": "seed"},
    "streams-with-epochs-in-eight-bits": {"part": "epoch"},
    "streams-overlap-further-on": {"part": "rank"},
    "seed-streams-overlap": {"parts": ("rank", "epoch")},
    "streams-seeded-with-text": {"parts": ("epoch", "seed")},
    "streams-of-every-second-seed": {"parts": ("rank", "seed")},
    "large-seeds-not-in-common": {"seed": 42 + (1 << 16)},
    "common-number-taken-by-rank-0": {"rank": 0, "count": 1},
    "numbers-of-eight-bits": {"count": 256},
    "large-draws-repeat-a-block": {"count": 8192},
    "first-sample-stays": {"samples": (0,)},
    "drop-last-is-not-shuffled": {"length": 81, "drop_last": True},
    "too-large-to-be-shuffled": {"length": 70_001, "drop_last": False},
    "seed-without-remainder": {"part": "seed", "length": 81},
    "epochs-of-even-lengths": {"part": "epoch", "length": 81},
    "rest-of-epoch-0": {"epoch": 0},
    "resume-forgets-epoch": {"epoch": 0},
    "prefetched-samples-lost": {"count": 2, "start": 5},
    "metric-without-the-third-rank": {"rank": 2},
    "metric-larger-than-a-bound": {"limit": 10_000.0},
    "metric-accuracy-ends-at-1": {"limit": 1.0},
    "metric-nan-of-empty-rank": {"value": "NaN"},
    "metric-infinity-of-empty-rank": {"value": "infinity"},
    "metric-nan-left-out": {"value": "NaN"},
    "metric-state-of-rank-0": {"rank": 0},
    "labels-in-a-byte": {"largest": 255},
    "f1-of-an-absent-class-is-0": {"value": 0},
    "auc-of-one-output": {"label": 1},
    "last-class-is-the-background": {"place": "last"},
    "score-of-indices-in-32-bits": {"dtype": "int32"},
    "score-of-indices-in-double-precision": {"dtype": "float64"},
    "indices-gathered-in-float32": {"dtype": "float32"},
    "outputs-gathered-in-half-precision": {"dtype": "float16"},
    "score-leaves-out-label-0": {"label": 0},
    "score-of-the-first-thousand": {"number": 1000},
}
NUMBERS: Mapping[str, str] = {
    "common-ones-part-later": "epoch 3 on rank 2",
    "seed-and-epoch-as-text": "seed 42, epoch 10",
    "one-generator-for-both": "of its own first",
    "common-numbers-move-with-many-own": "it drew 2051 numbers of its own first",
    "numbers-of-a-table": "2048 of 4096",
    "loaded-position-used-until-set-epoch": "got 7 samples",
    "short-period-of-seed-0": "(seed 0)",
    "drop-last-ignored": "remainder rule: drop",
    "lengths-unequal": "remainder rule: pad",
}
"""Parts of headlines, for numbers that are in no parameter."""


def tells_parameters(diagnosis: Diagnosis, fault: Registered) -> bool:
    """Whether the cause of this fault has these parameters, and the headline these numbers."""
    cause = next((each for each in diagnosis.causes if each.id == fault.cause), None)
    parameters = PARAMETERS.get(fault.name, {})
    told = not parameters or (cause is not None and all(cause.get(name) == value for name, value in parameters.items()))
    return told and NUMBERS.get(fault.name, "") in diagnosis.headline
