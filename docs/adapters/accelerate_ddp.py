"""Hugging Face Accelerate: the module that prepare() returns."""

from ddpcheck.pytorch.adapter import torch_adapter


def wrap(module):
    from accelerate import Accelerator

    return Accelerator(cpu=True).prepare(module)


adapter = torch_adapter("accelerate", wrap)
