"""At the end of the interpreter, agents send what they have recorded.

A child of a fork leaves its parent's agents alone. No exit function runs, and nothing is sent, after os._exit, after a
signal without a handler, in children of multiprocessing before Python 3.13, and in Celery's: call Agent.shutdown there.
"""

import atexit
import time

# For all agents together: a service that is stopped does not wait for aggregators that are away.
WITHIN_SECONDS = 2.0

# The agents of this process, and of those that it was forked from, until they are shut down. One that nothing else refers
# to stays, too: what it has counted is not sent yet.
opened = set()


@atexit.register
def _end():
    until = time.monotonic() + WITHIN_SECONDS
    for agent in list(opened):
        agent.end(max(0.0, until - time.monotonic()))
