"""A torch wrapper, its optimizer and its sampler, metrics and training loop: each facet beside the others in one adapter."""

from torch.nn.parallel import DistributedDataParallel  # or from my_ddp import MyDDP

from ddpcheck.pytorch.adapter import torch_adapter, torch_metrics, torch_sampler

adapter = torch_adapter("my_ddp", wrap=lambda module: DistributedDataParallel(module))

data = torch_adapter("my_data", sampler=torch_sampler, metrics=torch_metrics)
