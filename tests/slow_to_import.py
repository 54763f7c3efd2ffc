"""A module that takes longer to import than a test's deadline."""

import time

time.sleep(0.8)
