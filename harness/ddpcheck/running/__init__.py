"""A run of checks: check_runner, adapters by name, the plan, the limits of hangs, groups of failures."""
