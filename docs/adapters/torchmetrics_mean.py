"""torchmetrics' MeanMetric, whose compute() gathers what all ranks have: as it is, and with its search for NaN disabled."""

from functools import partial

from ddpcheck import TYPICAL
from ddpcheck.pytorch.adapter import torch_adapter


def aggregate(nan_strategy, metrics, count):
    import torch
    from torchmetrics import MeanMetric

    means = {}
    for name in sorted(metrics):
        mean = MeanMetric(nan_strategy=nan_strategy).set_dtype(torch.float64)
        value = metrics[name] if count else 0.0  # a mean over no samples is NaN
        mean.update(torch.tensor(value, dtype=torch.float64), torch.tensor(float(count), dtype=torch.float64))
        means[name] = float(mean.compute())
    return means


adapter = torch_adapter("torchmetrics", metrics=partial(aggregate, "warn"), capabilities=TYPICAL)
nan_disabled = torch_adapter("torchmetrics_nan_disabled", metrics=partial(aggregate, "disable"), capabilities=TYPICAL)
