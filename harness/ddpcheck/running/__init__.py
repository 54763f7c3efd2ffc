"""Runs of checks: finding adapters, planning, running checks, limiting hangs, grouping failures."""
