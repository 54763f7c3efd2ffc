"""Jobs with a model of one parameter: ranks that mix up their parameters are right in these, and so their other mistakes
show.
"""

from __future__ import annotations

from dataclasses import replace

from ddpcheck.causes import gradients, ranks
from ddpcheck.job import Job
from ddpcheck.models.spec import Activation, Layer, Linear
from ddpcheck.verdict import Finding

NOTE = (
    "a second mistake, with a model of one parameter: ranks that mix up their parameters, which other checks tell, are right "
    "in that."
)
MIXED_UP = frozenset({ranks.RANK_RAISED.id, ranks.RESULT_VIOLATES_CONTRACT.id, gradients.RANK_SENDS_OTHER_PARAMETER.id})
"""What Jobs show where ranks send their parameters in different orders: errors or other shapes, as lengths differ, or another
parameter's gradient.
"""


def may_hide_others(finding: Finding) -> bool:
    """Whether the Job failed as where ranks mix up their parameters."""
    cause = finding.diagnosis.cause
    return cause is not None and cause.id in MIXED_UP


def with_one_parameter(job: Job) -> Job | None:
    """The same operations on a model with one weight; None if they need another model, or have one for its special layers."""
    model = job.model
    if model is None or len(model.tensors()) == 1 or not all(map(_is_plain, model.layers)):
        return None
    layer = Linear("fc1", model.input_features, model.output_features, bias=False)
    try:
        return replace(job, model=replace(model, layers=(layer,)))
    except ValueError:  # an operation names a layer of the larger model
        return None


def _is_plain(layer: Layer) -> bool:
    if isinstance(layer, Linear):
        return layer == Linear(layer.name, layer.inputs, layer.outputs, bias=layer.bias)
    return isinstance(layer, Activation)
