"""Rate and concurrency limits for a whole fleet, decided in this process: no call ever waits.

    agent = tollgate.Agent.from_env()          # TOLLGATE_AGGREGATORS=127.0.0.1:7401
    search = agent.rate("api.search")
    answer = search.hit("acme")
    if not answer:
        return answer.status, answer.headers(), answer.body()

Middleware for ASGI (FastAPI, Starlette, Django) is in `tollgate.asgi`, for WSGI (Flask, Django) in
`tollgate.wsgi`.
"""

import os as _os

from . import asgi, wsgi
from ._tollgate import Agent, Allowed, Copies, Denied, Estimate, Hold, Rate, Revoked
from ._tollgate import after_fork as _after_fork

# A forked child (gunicorn --preload, Celery, multiprocessing) makes its own agent with its first call.
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_after_fork)

__all__ = ["Agent", "Allowed", "Copies", "Denied", "Estimate", "Hold", "Rate", "Revoked", "asgi", "wsgi"]
