"""Sessions whose ranks are forked: starting an interpreter for each would take most of the tests' time."""

from __future__ import annotations

from functools import partial

from ddpcheck.launchers.fork_servers import ForkServers
from ddpcheck.session import Session

TEMPLATES = ForkServers()
session = partial(Session, fork_servers=TEMPLATES)
