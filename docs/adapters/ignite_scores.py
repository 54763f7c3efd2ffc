"""Scores of pytorch-ignite, whose compute() adds up what all ranks have counted."""

from ddpcheck import TYPICAL
from ddpcheck.pytorch.adapter import torch_adapter


def compute(name, outputs, targets, indices):
    import torch
    from ignite.exceptions import NotComputableError
    from ignite.metrics import Accuracy, RootMeanSquaredError

    metric = {"accuracy": Accuracy, "rmse": RootMeanSquaredError}[name]()
    metric.reset()
    if len(indices):
        metric.update((torch.from_numpy(outputs), torch.from_numpy(targets)))
    try:
        return float(metric.compute())
    except NotComputableError:  # no rank has a sample
        return float("nan")


adapter = torch_adapter("ignite_scores", scores=compute, capabilities=TYPICAL.but(score_names={"accuracy", "rmse"}))
