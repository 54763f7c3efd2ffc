"""Simulates several hosts: ranks of one host get the variables that a launcher would set there."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from ..contract.rank_context import local_names, rank_context


def set_simulated_hosts(variables: MutableMapping[str, str], sizes: Sequence[int]) -> None:
    """Set a rank's local rank, local world size and host, in the variables of its launcher and of torchrun.

    sizes: the number of ranks of each host; rank 0 is on the first.
    """
    rank = rank_context(variables).rank
    host = next(host for host in range(len(sizes)) if rank < sum(sizes[: host + 1]))
    local_rank, local_size = str(rank - sum(sizes[:host])), str(sizes[host])
    for rank_name, size_name in {local_names(variables), ("LOCAL_RANK", "LOCAL_WORLD_SIZE")}:
        variables.update({rank_name: local_rank, size_name: local_size})
    variables.update({"GROUP_RANK": str(host), "NODE_RANK": str(host), "GROUP_WORLD_SIZE": str(len(sizes))})
