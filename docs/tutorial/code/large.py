"""One all-reduce of 64 MiB, which no buffer of the operating system holds: python large.py ring_3.py:adapter"""

import sys

from ddpcheck import Finding, Job, Session, assertions
from ddpcheck.job import AllReduce, TensorSpec

with Session(sys.argv[1], world_size=2, deadline=10) as session:
    trace = session.run(Job(2, (AllReduce(TensorSpec((16_777_216,))),)))
    try:
        assertions.completed(trace)
        print("all ranks came back")
    except Finding as finding:
        print(finding)
