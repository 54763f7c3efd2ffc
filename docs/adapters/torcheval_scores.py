"""Scores of torcheval, whose sync_and_compute() gathers the states of all ranks' metrics."""

from ddpcheck import TYPICAL
from ddpcheck.pytorch.adapter import torch_adapter


def metric_of(name, classes):
    from torcheval.metrics import BinaryAUROC, MeanSquaredError, MulticlassAccuracy, MulticlassF1Score, Perplexity

    return {
        "accuracy": MulticlassAccuracy,
        "auc": BinaryAUROC,
        "f1_macro": lambda: MulticlassF1Score(num_classes=classes, average="macro"),
        "perplexity": Perplexity,
        "rmse": MeanSquaredError,
    }[name]()


def compute(name, outputs, targets, indices):
    import torch
    from torcheval.metrics.toolkit import sync_and_compute

    metric = metric_of(name, outputs.shape[1])
    outputs, targets = torch.from_numpy(outputs), torch.from_numpy(targets)
    if name == "auc":
        outputs = outputs[:, 1] - outputs[:, 0]
    if name == "perplexity":  # of one sequence
        outputs, targets = outputs[None], targets[None]
    if len(indices):
        metric.update(outputs, targets)
    value = sync_and_compute(metric)
    if not value.numel():  # perplexity of no samples
        return float("nan")
    return float(value.sqrt() if name == "rmse" else value)


def of(*names):
    return torch_adapter("torcheval_scores", scores=compute, capabilities=TYPICAL.but(score_names=frozenset(names)))


adapter = of("accuracy", "auc", "f1_macro", "perplexity", "rmse")
counted = of("accuracy", "f1_macro", "perplexity")
