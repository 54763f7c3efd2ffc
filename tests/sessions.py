"""Sessions whose ranks are forked: fresh interpreters for every one would take most of the tests' time."""

from __future__ import annotations

from functools import partial

from ddpcheck.launchers.fork_servers import Templates
from ddpcheck.session import Session

TEMPLATES = Templates()
session = partial(Session, templates=TEMPLATES)
