"""The regression gate: is head slower than base? `ddpcheck gate ADAPTER --base REV` (command.py)

run           checks out both trees (trees.py), and makes the environments of their ranks (compared_revision.py)
stages        the order of measurements, and the decision whether they suffice
launches      fresh process groups of both sides, alternating bursts of the benchmarks in gate_benchmarks.py
decision      the launch as unit, exact signed-rank bounds (signed_rank.py), three looks
traffic       quantities without noise: bytes, messages and collectives must be equal
record        all measurements, from which result.py can decide again
summary       markdown; storage: pytest-benchmark's JSON
study         error rates of the gate, and the changes that it finds
"""
