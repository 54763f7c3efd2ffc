"""Hypotheses: functions from evidence to the causes that explain it. The oracle knows expected values only, and needs none.

    ordered_hypotheses      the hypotheses for each kind of evidence, in the order in which they are tried
    evidence                what laws ask about a wrong array of a replica, a collective or a message
    causes_of_wrong_numbers what laws ask about a wrong mean or score
    causes_of_wrong_arrays  what `assertions` asks about any wrong array

Families: arrays, collectives, gradients, updates, losses, norms, metrics, scores, training, replicas, samplers, randomness,
programs (the place in a Job), errors and failed_ranks (ranks that fail or hang), lifecycle, process_state, traffic.
"""
