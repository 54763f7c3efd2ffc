"""Sessions whose ranks are forked: fresh interpreters for every one would take most of the tests' time."""

from __future__ import annotations

from functools import partial

from ddpcheck.launchers.fork_servers import ForkServers
from ddpcheck.session import Session

TEMPLATES = ForkServers()
session = partial(Session, fork_servers=TEMPLATES)
