"""The regression gate: is head slower than base? `ddpcheck gate ADAPTER --base REV` (command.py)

run           both trees checked out (trees.py), and the environments that their ranks live in (compared_revision.py)
stages        the order of measurements, and when they are enough:
launches      fresh process groups of both sides, alternating bursts of what gate_benchmarks.py names
decision      the launch as unit, exact signed-rank bounds (signed_rank.py), three looks
traffic       quantities without noise: bytes, messages and collectives must be equal
record        everything that was measured, so that result.py can decide again
summary       markdown; storage: pytest-benchmark's JSON
study         how often it is wrong, and which changes it finds
"""
