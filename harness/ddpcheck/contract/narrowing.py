"""What a check leaves out since an implementation does not promise it: noted as the check asks, and told in its verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from .capabilities import GROUPS, Capabilities
from .promises import Promises

OPTIONAL_CALLS: dict[str, str] = {
    "subgroups": "sub-groups",
    "asynchronous": "asynchronous calls",
    "in_place": "in-place calls",
    "no_sync": "no_sync",
    "clipping": "clipping",
    "checkpoint": "saving and loading",
    "unfreezing": "freezing and unfreezing",
    "zeroes_gradients": "gradients set to zero",
    "several_replicas": "several replicas",
    "averaged_weights": "moving averages",
}
"""Promises without which a check makes fewer calls, and what it leaves out then. A convention, such as how ranks weigh, narrows
nothing.
"""


def watched(capabilities: Capabilities, note: Callable[[str], None]) -> Capabilities:
    """Equal capabilities that call `note` with what is left out whenever somebody asks for one of these that is not
    promised, of a facet that is offered.
    """
    made = {}
    for name in GROUPS:
        own = getattr(capabilities, name)
        kind = _WATCHING[type(own)]
        values = {field.name: getattr(own, field.name) for field in dataclasses.fields(own)}
        made[name] = kind(**values)
        object.__setattr__(made[name], "_note", note)
    return Capabilities(**made)


def _watching(group: type[Promises]) -> type[Any]:
    """A subclass of a group of promises that reports promises which were asked for and are not made."""

    def asked(self: Any, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if value is False and name in OPTIONAL_CALLS:
            own = object.__getattribute__(self, "__dict__")
            if own["offered"] and "_note" in own:
                own["_note"](OPTIONAL_CALLS[name])
        return value

    return type(
        group.__name__, (group,), {"__getattribute__": asked, "__eq__": group.__eq__, "__hash__": group.__hash__}
    )


_WATCHING = {group: _watching(group) for group in GROUPS.values()}
