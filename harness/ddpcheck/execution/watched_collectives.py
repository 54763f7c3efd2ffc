"""Watches the asynchronous collectives of torch.distributed in this process, where it is in use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..pytorch.collective_watch import CollectiveWatch

_watch: CollectiveWatch | None = None


def watch() -> dict[str, Any]:
    """Watch from now on. The values of WatchCollectives."""
    global _watch
    torch_distributed: Any = sys.modules.get("torch.distributed")
    if torch_distributed is None or not torch_distributed.is_initialized():
        return {"watched": False, "found": []}
    from ..pytorch.collective_watch import CollectiveWatch

    end()
    _watch = CollectiveWatch()
    return {"watched": True, "found": []}


def end() -> dict[str, Any]:
    """Watch no more. The values of WatchCollectives."""
    global _watch
    if _watch is None:
        return {"watched": False, "found": []}
    found, _watch = _watch.end(), None
    return {"watched": True, "found": [list(each) for each in found]}
