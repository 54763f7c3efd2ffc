"""Hypotheses: functions from evidence to the causes that explain it. The oracle gives only expected values, and uses
none.

    ordered_hypotheses       the hypotheses for each kind of evidence, in the order in which they are tried
    choose_causes            the first cause, or all, of one table of ordered_hypotheses
    evidence                 causes of a wrong array of a replica, a collective or a message
    causes_of_wrong_numbers  causes of a wrong mean or score
    causes_of_wrong_arrays   causes of any wrong array, for `assertions`
    causes_of_observations   causes of a wrong array beside others, and of a wrong value at its place in a Job
    causes_of_training       causes of wrong parameters of a training run

Families: arrays, collectives, gradients, updates, losses, norms, metrics, scores, training, replicas, samplers,
randomness, programs (the place in a Job), observed_arrays (the other arrays), errors and failed_ranks (ranks that fail
or hang), rendezvous, lifecycle, process_state, traffic.
"""
