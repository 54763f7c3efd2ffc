"""Scores of torchmetrics that are no means: compute() gathers or sums up what all ranks have. It knows of no sample twice."""

from ddpcheck import TYPICAL
from ddpcheck.pytorch.adapter import torch_adapter


def metric_of(name, classes):
    from torchmetrics import MeanSquaredError
    from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassF1Score
    from torchmetrics.text import Perplexity

    return {
        "accuracy": lambda: MulticlassAccuracy(classes, average="micro"),
        "auc": BinaryAUROC,
        "f1_macro": lambda: MulticlassF1Score(classes, average="macro"),
        "perplexity": Perplexity,
        "rmse": lambda: MeanSquaredError(squared=False),
    }[name]()


def compute(name, outputs, targets, indices):
    import torch

    metric = metric_of(name, outputs.shape[1])
    outputs, targets = torch.from_numpy(outputs), torch.from_numpy(targets)
    if name == "auc":
        outputs = outputs[:, 1] - outputs[:, 0]
    if name == "perplexity":  # of one sequence
        outputs, targets = outputs[None], targets[None]
    if len(indices):
        metric.update(outputs, targets)
    return float(metric.compute())


adapter = torch_adapter("torchmetrics_scores", scores=compute, capabilities=TYPICAL)
summed_up = torch_adapter(
    "torchmetrics_sums",
    scores=compute,
    capabilities=TYPICAL.but(score_names={"accuracy", "f1_macro", "perplexity", "rmse"}),
)
