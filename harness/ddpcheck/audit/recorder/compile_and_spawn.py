"""Replaces calls that would run differently, and notes them: compiled functions run eagerly; spawn uses the audit's
ranks.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.multiprocessing

from ..recorded_process import Run


def install(run: Run) -> None:
    def compile(model: Any = None, **kwargs: Any) -> Any:
        run.note("instead", what="torch.compile", by="eager execution", line=run.line())
        return model if model is not None else lambda function: function

    def spawn(fn: Any, args: Any = (), nprocs: int = 1, **kwargs: Any) -> None:
        run.note(
            "instead", what=f"spawn of {nprocs} processes", by="the ranks of the audit", line=run.line(), count=nprocs
        )
        fn(int(os.environ.get("LOCAL_RANK", "0")), *args)

    torch_module: Any = torch
    torch_module.compile = compile
    torch_module.nn.Module.compile = lambda self, *args, **kwargs: compile(self)

    def make_convert(original: Any) -> Any:
        def convert_sync_batchnorm(cls: Any, module: Any, process_group: Any = None) -> Any:
            run.note("converted", line=run.line())
            return original(module, process_group)

        return classmethod(convert_sync_batchnorm)

    norm = torch.nn.SyncBatchNorm
    norm.convert_sync_batchnorm = make_convert(norm.convert_sync_batchnorm)  # type: ignore[method-assign]
    torch_module.multiprocessing.spawn = spawn
