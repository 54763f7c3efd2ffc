"""Audits whose processes are forked, since importing torch would take most of the tests' time.

With DDPCHECK_EVERY_FAULT=1 each process starts an interpreter, as a user's script does.
"""

from __future__ import annotations

import os
from functools import partial

from chosen_faults import EVERY
from sessions import TEMPLATES

from ddpcheck.audit import audit_in_tests

FORK_SERVERS = None if os.environ.get(EVERY) else TEMPLATES
audit = partial(audit_in_tests.audit, fork_servers=FORK_SERVERS)
