"""torch's DistributedDataParallel, whose gradients travel as float16, by torch's own hook."""

from typing import Any

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter


def wrap(module: Any) -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(module)
    wrapped.register_comm_hook(None, fp16_compress_hook)
    return wrapped


promised = TORCH_PROMISES.but(reduction_dtype="float16")
adapter = torch_adapter("ddp_fp16", wrap, capabilities=promised)
