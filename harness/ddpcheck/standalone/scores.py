"""Scores over the samples of all ranks as plain calls, and the same scores in one process."""

from __future__ import annotations

import math

from ..job import Score
from ..oracle.scores import allowed, score_of
from .literals import listed, literal
from .samplers_and_runs import same
from .text import NoScript, Text

_MOST = 8000
"""Numbers that are written out; a longer script would not be readable."""

_TOGETHER = '''
def all_samples(outputs, targets, indices):
    """The samples of all ranks, each once; rows of index -1 are padding."""
    outputs, targets, indices = (np.concatenate(each) for each in (outputs, targets, indices))
    samples, first = np.unique(indices, return_index=True)
    rows = first[samples >= 0]
    return outputs[rows].astype("float64"), targets[rows]
'''
_FORMULAS = {
    "accuracy": '''
def accuracy(outputs, labels):
    """The share of samples whose largest output is the label's."""
    return float(np.mean(outputs.argmax(axis=1) == labels)) if len(labels) else float("nan")
''',
    "auc": '''
def auc(outputs, labels):
    """The share of pairs in which class 1 has the larger margin; equal margins count half."""
    margins = outputs[:, 1] - outputs[:, 0]
    order = [np.sign(high - low) for high in margins[labels == 1] for low in margins[labels == 0]]
    return (float(np.mean(order)) + 1) / 2 if order else float("nan")
''',
    "f1_macro": '''
def f1_macro(outputs, labels):
    """The mean of the classes' F1, for classes that are a label or a largest output."""
    guesses, found = outputs.argmax(axis=1), []
    for each in sorted({*labels.tolist(), *guesses.tolist()}):
        hits = np.sum((guesses == each) & (labels == each))
        found.append(2 * hits / (np.sum(guesses == each) + np.sum(labels == each)))
    return float(np.mean(found)) if found else float("nan")
''',
    "perplexity": '''
def perplexity(outputs, labels):
    """exp of the mean cross entropy."""
    outputs = outputs - outputs.max(axis=1, keepdims=True)  # or exp may overflow
    losses = np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(len(labels)), labels]
    return float(np.exp(losses.mean())) if len(labels) else float("nan")
''',
    "rmse": '''
def rmse(outputs, targets):
    """The root of the mean square."""
    return float(np.sqrt(np.mean((outputs - targets) ** 2))) if len(targets) else float("nan")
''',
}


def score(text: Text, position: int, op: Score) -> None:
    text.use("compute_score")
    text.judges = True
    given = [op.given(rank) for rank in range(text.job.world_size)]
    if sum(outputs.size for outputs, _, _ in given) > _MOST:
        raise NoScript(f"operation {position} (score) has more samples than can be written out")
    for formula in (_TOGETHER, _FORMULAS[op.name]):
        if f"\n{formula}\n" not in text.inputs:
            text.inputs.append(f"\n{formula}\n")
    number = sum(part.startswith("OUTPUTS_") for part in text.inputs)
    names = [f"{what}_{number}" for what in ("OUTPUTS", "TARGETS", "INDICES")]
    text.inputs += [
        listed([literal(array) for array in arrays], name)
        for name, arrays in zip(names, zip(*given, strict=True), strict=True)
    ]
    text.comment(position, f"{op.name} of the samples of all ranks, as computed by one process with all samples")
    text.add(
        f"mine = [each[rank] for each in ({', '.join(names)})]",
        "given = [each.copy() for each in mine]",
        f'got = float(compute_score("{op.name}", *given))',
        f'expect("{op.name}", got, {op.name}(*all_samples({", ".join(names)})){_within(op)})',
        'for what, now, before in zip(("outputs", "targets", "indices"), given, mine):',
        '    expect_unchanged(f"the {what} that were passed", now, before)',
        *same(position, "got"),
    )


def _within(op: Score) -> str:
    """The rounding bound in float32; none for NaN."""
    held = tuple(dict.fromkeys(index for rank in op.indices for index in rank if index >= 0))
    outputs, targets, _ = op.rows(held)
    if math.isnan(score_of(op.name, outputs, targets)):
        return ""
    return f", within={allowed(op.name, outputs, targets, len(op.indices)):.2g}"
