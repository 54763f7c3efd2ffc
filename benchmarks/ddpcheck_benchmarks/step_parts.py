"""The parts of a step's time: exposed communication, and communication that is hidden behind computing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any


def step_parts(data: Sequence[float], info: Mapping[str, Any]) -> dict[str, float | None]:
    """Seconds: medians over launches, each of differences within a launch.

    exposed = T(N) - T_compute(N), where T_compute is the same step in no_sync(); hidden = 1 - exposed / t_comm_alone,
    within [0, 1], where t_comm_alone is one all_reduce of as many bytes as there are gradients. of_possible is the
    hidden time over the smaller of backward and t_comm_alone, which is the most that can be hidden; backward is known
    if forward is a known wait. Unknown parts are None; so are all parts for one rank, which has nothing to hide.
    """
    launches = info["per_launch"]
    compute, alone = _known(launches["compute"]), _known(launches["comm_alone"])
    exposed = [step - without for step, without in zip(data, compute, strict=False)]
    shares = [1 - out / whole for out, whole in zip(exposed, alone, strict=False) if whole > 0]
    several = info["world_size"] > 1
    forward = info["delays"][0]
    backward = [seconds - forward for seconds in _known(launches["compute_backward"])] if forward else []
    possible = [
        (whole - out) / min(back, whole)
        for out, whole, back in zip(exposed, alone, backward, strict=False)
        if whole > 0
    ]
    return {
        "step": median(data),
        "compute": median(compute) if compute else None,
        "exposed": median(exposed) if exposed else None,
        "comm_alone": median(alone) if alone else None,
        "hidden": min(1.0, max(0.0, median(shares))) if shares and several else None,
        "of_possible": min(1.0, max(0.0, median(possible))) if possible and several else None,
        "optimizer": median(launches["optimizer"]),
    }


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
