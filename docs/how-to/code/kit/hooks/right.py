import torch
import torch.distributed as dist


def average(parameters):
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:  # another rank may have used it
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
