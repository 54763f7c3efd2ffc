"""Profiles: the number of drawn Jobs per check, and the world sizes."""

from __future__ import annotations

from dataclasses import dataclass

from .unknown_names import require_known


@dataclass(frozen=True, slots=True)
class Profile:
    """effort: the number of Jobs that a check draws at two ranks, beside its fixed examples. At one and three ranks a
    check draws a third as many, above three a fifth: one rank has no others to differ from, and with more ranks a Job
    costs more and most faults have already shown.

    deep: checks also run their longest Jobs: the largest arrays that memory allows, and more calls than 16 bits count.
    """

    name: str
    effort: int
    world_sizes: tuple[int, ...]
    sentence: str
    deep: bool = False

    def draws(self, world_size: int) -> int:
        return -(-self.effort // {1: 3, 2: 1, 3: 3}.get(world_size, 5))


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", 8, (1, 2, 3), "Eight drawn Jobs per check: while you edit, and on every push."),
        Profile("default", 25, (1, 2, 3, 4), "Twenty-five drawn Jobs per check: before a merge."),
        Profile(
            "thorough",
            300,
            (1, 2, 3, 4, 5),
            "Three hundred drawn Jobs per check: over night, and before a release.",
        ),
        Profile(
            "deep",
            25,
            (2,),
            "Very large arrays, very many calls, very late ranks: an hour, for a nightly run.",
            deep=True,
        ),
    )
}


def profile_named(name: str) -> Profile:
    """The profile of this name. ValueError, with the known names, if there is none."""
    return PROFILES[require_known(name, PROFILES, "profile")]
