"""What using an implementation leaves changed or behind in the process."""

from .cause import Kind

GENERATOR_CHANGED = Kind(
    "process-generator-changed",
    "Generators of the process are seeded or drawn from: {generators}.",
    because="Masks, noise and orders that the program draws from them change, or repeat.",
    look="a generator of the implementation's own",
    generators=tuple[str, ...],
)
SETTING_CHANGED = Kind(
    "process-setting-changed",
    "A setting of the whole process is changed and not put back: {settings}.",
    look="the line that sets it: restore the earlier value, or set nothing",
    settings=tuple[str, ...],
)
MAKING_SEEDS = Kind(
    "making-seeds-generator",
    "make_replica() seeds {generator} and does not put it back.",
    because="Masks, noise and orders that the program draws later repeat with every replica.",
    look="a generator of the replica's own",
    generator=str,
)
MAKING_SEEDS_RANKS_ALIKE = Kind(
    "making-seeds-ranks-alike",
    "make_replica() seeds {generator} with one number on all ranks.",
    because="All ranks draw the same masks and noise from then on.",
    look="a generator of the replica's own",
    generator=str,
)
MEMORY_GROWS = Kind(
    "memory-grows",
    "Memory grows with every call: {held} are kept after their use.",
    look="lists and caches that get an entry in every call",
    held=str,
)
RESOURCE_LEFT = Kind(
    "resource-left-by-each-call",
    "Every call leaves {resource} behind: a long run exhausts them.",
    look="the end of each call: close what it opened",
    resource=str,
)
