"""Forks, signals and the end of processes: what a service's process manager does to the agent.

Knows nothing of frameworks. What stays true: no test leaves a process behind, also if it fails.
"""

import signal
import subprocess
import sys
import time

import pytest
import tollgate

NOWHERE = "127.0.0.1:1"


def run(lines, *args):
    """Runs a program, which has to end well, and returns what it prints."""
    command = [sys.executable, "-c", lines, *args]
    return subprocess.run(command, check=True, timeout=60, stdout=subprocess.PIPE, text=True).stdout


# The child is ended if it does not end by itself: nobody else would wait for it.
FORK = """
import os, resource, select, signal, sys, tollgate

def in_child(run, within=20):
    child = os.fork()
    if child == 0:
        run()
        sys.exit(0)
    ended, _, _ = select.select([os.pidfd_open(child)], [], [], within)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    sys.exit(status != 0 if ended else "the child does not end")

agent = tollgate.Agent([sys.argv[1]])
free = agent.rate("api.free")
assert free.hit("acme")
"""

WITHOUT_THREADS = """
def child():
    if os.geteuid() == 0:
        # No limit is valid for root.
        os.setuid(65_533)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    assert free.hit("acme")
    if sys.argv[2] == "is shut down":
        assert agent.shutdown(1) == (0, 0)
in_child(child)
"""


@pytest.mark.parametrize("how", ["ends", "is shut down"])
def test_a_child_that_can_start_no_threads_ends(how):
    run(FORK + WITHOUT_THREADS, NOWHERE, how)


def test_a_child_has_no_counts_of_an_agent_that_was_shut_down(aggregator):
    lines = """
assert agent.ready(10) and agent.shutdown(10) == (1, 0)
def child():
    assert free.hit("acme")
    assert agent.shutdown(1) == (0, 0)
in_child(child)
"""
    run(FORK + lines, aggregator)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_threads_of_an_agent_block_sigpipe():
    lines = """
import os, signal, time, tollgate
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
def blocked(thread):
    with open(f"/proc/self/task/{thread}/status") as status:
        (mask,) = [line.split()[1] for line in status if line.startswith("SigBlk:")]
    return int(mask, 16) >> (signal.SIGPIPE - 1) & 1
agent = tollgate.Agent(["127.0.0.1:1"])
threads = set(os.listdir("/proc/self/task")) - {str(os.getpid())}
assert threads and all(blocked(thread) for thread in threads), threads
# The service's own threads are left as they are.
assert not blocked(os.getpid())
"""
    run(lines)


def test_a_child_that_is_shut_down_before_its_first_call_stays_so(aggregator):
    lines = """
search = agent.rate("api.search")
assert agent.ready(10)
while search.hit("acme"):
    pass
def child():
    assert agent.shutdown(1) == (0, 0)
    assert search.hit("acme") and free.hit("acme")
    assert not agent.ready(0.01) and agent.stats()["welcomes"] == 0
    assert agent.shutdown(1) == (0, 0)
in_child(child)
"""
    run(FORK + lines, aggregator)


@pytest.mark.parametrize("wait", ["ready", "shutdown"])
def test_a_signal_interrupts_waiting(wait):
    class Interrupted(Exception):
        pass

    def interrupt(number, frame):
        handled.append(number)
        if len(handled) == 2:
            raise Interrupted

    agent = tollgate.Agent([NOWHERE])
    agent.rate("api.free").hit("acme")
    handled, before = [], time.monotonic()
    handler = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.25)
    try:
        # A handler that raises nothing, like the first time, ends no waiting.
        with pytest.raises(Interrupted):
            getattr(agent, wait)(30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    # Another shutdown does not wait for the one that was interrupted.
    agent.shutdown(0.01)
    assert time.monotonic() - before < 15
