"""What a step's time consists of: exposed communication and the part that is hidden behind computing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any


def step_parts(data: Sequence[float], info: Mapping[str, Any]) -> dict[str, float | None]:
    """Seconds: medians over launches, each of differences within a launch.

    exposed = T(N) - T_compute(N), where T_compute is the same step in no_sync(); hidden = 1 - exposed / t_comm_alone, within
    [0, 1], where t_comm_alone is one all_reduce of as many bytes as there are gradients. None where a part is not known, and
    hidden at one rank, where there is nothing to hide.
    """
    launches = info["per_launch"]
    compute, alone = _known(launches["compute"]), _known(launches["comm_alone"])
    exposed = [step - without for step, without in zip(data, compute, strict=False)]
    shares = [1 - out / whole for out, whole in zip(exposed, alone, strict=False) if whole > 0]
    several = info["world_size"] > 1
    return {
        "step": median(data),
        "compute": median(compute) if compute else None,
        "exposed": median(exposed) if exposed else None,
        "comm_alone": median(alone) if alone else None,
        "hidden": min(1.0, max(0.0, median(shares))) if shares and several else None,
        "optimizer": median(launches["optimizer"]),
    }


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
