"""python cost.py ADDRESS [rounds]: the time of a call, and how many were recorded, as agent/c/examples/cost.c measures.

The loop over domains, and the question whether an answer is a refusal, are part of what is measured.
"""

import sys
import time

import tollgate

DOMAINS, BLOCKS = 1000, 2000


def block_of(hit, domains):
    """How long it took, and how many were refused."""
    refused = 0
    start = time.perf_counter_ns()
    for domain in domains:
        if not hit(domain):
            refused += 1
    took = time.perf_counter_ns() - start
    while time.perf_counter_ns() - start < 1_000_000:
        pass
    return took, refused


def measure(agent, rate, domains):
    before = agent.stats()
    blocks = [block_of(rate.hit, domains) for _ in range(BLOCKS)]
    after = agent.stats()
    took = sorted(took for took, _ in blocks)
    refused = sum(refused for _, refused in blocks)
    recorded, acknowledged = (
        100 * (after[name] - before[name]) / (BLOCKS * DOMAINS) for name in ("hits_accepted", "hits_acknowledged")
    )
    print(
        f"Python: {took[BLOCKS // 2] / DOMAINS:.1f} ns a call (a tenth: {took[BLOCKS // 10] / DOMAINS:.1f}), "
        f"{recorded:.2f} % recorded, {acknowledged:.2f} % acknowledged, {refused} refused",
        flush=True,
    )


def main():
    agent = tollgate.Agent([sys.argv[1]], name="cost-python")
    rate = agent.rate("api.free")
    domains = [f"tenant:{i:08x}:user:{i * 7919:08x}" for i in range(DOMAINS)]
    agent.ready(5)
    if len(sys.argv) < 3:
        measure(agent, rate, domains)
    for _ in sys.stdin if 2 < len(sys.argv) else ():
        measure(agent, rate, domains)
    agent.shutdown(2)


main()
