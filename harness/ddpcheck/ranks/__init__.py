"""The ranks of a Session, as the driver sees them: starting, connecting, answering, and ending hung ranks.

    world                 the ranks of one start: their processes, and a link to each
    attaching             ranks connect to the driver over an authenticated channel, and enter the world
    rank_link             the driver's end of one rank
    hang_detection        the ranks' answers to one Job, and which rank hangs (low_priority_poll waits for them)

Conditions of a start: start_conditions, with foreign_clients and simulated_hosts; rank_interpreter runs ranks with
another interpreter and import path.
"""
