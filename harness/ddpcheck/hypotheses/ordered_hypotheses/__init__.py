"""The hypotheses about each kind of wrong value, in the order in which they are tried: the likeliest first.

A hypothesis is a small function from evidence to causes. Those about an array or a number also give the value that each
cause predicts, on every rank.

Laws use most tables through evidence.py, causes_of_wrong_numbers.py and causes_of_wrong_arrays.py, and the others by
choose_causes.py.

Two kinds are not in these tables. A whole training run is compared with emulated runs by other rules, which
training/whole_runs.py, resumes.py and some_steps.py list. A law calls a hypothesis directly if no other one explains
the same evidence.
"""
