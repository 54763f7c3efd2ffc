"""The ranks of a Session, as the driver sees them: how they attach, what they answer, and how silent ones are ended.

    world       the ranks of one start: their processes, and a link to each
    attaching   ranks on their way into a world
    rank_link   the driver's end of one rank
    gathering   the ranks' answers to one Job, and giving_way to ranks that need the processor

The rest is what a start may be like: home, hard_start, strangers, told_hosts.
"""
