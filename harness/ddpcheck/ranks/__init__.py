"""The ranks of a Session, as the driver sees them: how they attach and answer, and how hung ranks are ended.

    world                 the ranks of one start: their processes, and a link to each
    attaching             ranks on their way into a world, over a channel that authentication guards
    rank_link             the driver's end of one rank
    hang_detection        the ranks' answers to one Job, and which rank hangs (low_priority_poll waits for them)

Conditions of a start: start_conditions, with foreign_clients and simulated_hosts; rank_interpreter for code of its own.
"""
