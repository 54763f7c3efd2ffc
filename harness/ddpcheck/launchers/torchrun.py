"""torchrun: torch's own agent, which gives every rank RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT."""

from __future__ import annotations

import importlib.util
import secrets
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from .agent import Agent
from .launcher import Launched


@dataclass(frozen=True)
class Torchrun:
    """torch's elastic agent on this host, as torchrun starts it.

    Agents meet in a store, and unpickle its content. torch's own store listens on all addresses, so this one is a file
    in a folder of mode 0700, and the agent does not listen. Ranks get a free port for their own communication.
    """

    name: str = "torchrun"
    ends_ranks_together: ClassVar[bool] = True

    def unavailable(self) -> str | None:
        if importlib.util.find_spec("torch") is not None:
            return None
        return "torch is not installed; install it with: pip install torch"

    def start(
        self,
        command: Sequence[str],
        world_size: int,
        variables: Mapping[str, str],
        *,
        inherit_output: bool = False,
    ) -> Launched:
        scratch = tempfile.TemporaryDirectory(prefix="ddpcheck-torchrun-")  # the agent leaves its folder of logs behind
        agent = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            f"--nproc-per-node={world_size}",
            "--rdzv-backend=c10d",
            "--rdzv-conf=store_type=file",
            f"--rdzv-endpoint={Path(scratch.name, 'store')}",
            "--local-addr=127.0.0.1",
            f"--rdzv-id={secrets.token_hex(8)}",
            "--max-restarts=0",
            f"--log-dir={scratch.name}",
            "--no-python",
        ]
        # otherwise the agent opens another store, on all addresses
        more = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **variables}
        return Agent.start("torchrun", [*agent, *command], more, scratch=scratch, inherit_output=inherit_output)
