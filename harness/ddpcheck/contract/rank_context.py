"""This rank's place in the world, read from the launcher's variables, without importing the implementation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

# launcher: (rank, world size, local rank, local world size). An engine's own variables come before RANK, which the
# user's shell may have left; torchrun's agent id comes first, since torchrun may run under mpiexec or srun.
_ENGINES: tuple[tuple[str, str, tuple[str, str, str, str]], ...] = (
    ("torchrun", "TORCHELASTIC_RUN_ID", ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")),
    (
        "openmpi",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ),
    ("mpich", "PMI_RANK", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")),
    ("environment", "RANK", ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")),
    ("srun", "SLURM_PROCID", ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")),
)
ENGINE_VARIABLES = frozenset(name for _, marker, names in _ENGINES for name in (marker, *names))
RANK_VARIABLES = tuple(names[0] for _, _, names in _ENGINES)
DEFAULT_MASTER_PORT = 29500


@dataclass(frozen=True, slots=True)
class RankContext:
    """One rank's place: rank and world size, local rank and local world size, and the address of rank 0.

    The ranks of a world share address and port, and no other world uses both at the same time; parent processes may
    differ.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    master_addr: str = "127.0.0.1"
    master_port: int = DEFAULT_MASTER_PORT
    engine: str = "none"


def rank_context(variables: Mapping[str, str] | None = None) -> RankContext:
    """The RankContext from the launcher's variables; rank 0 of 1 without a launcher.

    ValueError if a variable is not a number or the rank is outside the world.
    """
    env = os.environ if variables is None else variables
    found = next(((engine, names) for engine, marker, names in _ENGINES if marker in env), None)
    if found is None:
        return RankContext(0, 1, 0, 1, *_master(env))
    engine, (rank_name, world_name, local_name, local_world_name) = found
    rank = _number(env, rank_name, 0)
    world_size = _number(env, world_name, 1)
    if not 0 <= rank < world_size:
        raise ValueError(f"{rank_name}={rank} is not below {world_name}={world_size}: set both for every process")
    local_rank = _number(env, local_name, rank)
    return RankContext(
        rank, world_size, local_rank, _number(env, local_world_name, world_size), *_master(env), engine=engine
    )


def local_names(variables: Mapping[str, str]) -> tuple[str, str]:
    """The launcher's variables for a rank's local rank and local world size."""
    known = (names[2:] for _, marker, names in _ENGINES if marker in variables)
    return next(known, ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))


def _master(env: Mapping[str, str]) -> tuple[str, int]:
    return env.get("MASTER_ADDR", "127.0.0.1"), _number(env, "MASTER_PORT", DEFAULT_MASTER_PORT)


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} is not a number") from None
