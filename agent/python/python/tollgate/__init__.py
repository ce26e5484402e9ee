"""Rate and concurrency limits for a whole fleet, decided in this process: no call ever waits.

    agent = tollgate.Agent.from_env()          # TOLLGATE_AGGREGATORS=127.0.0.1:7401
    search = agent.rate("api.search")
    answer = search.hit("acme")
    if not answer:
        return answer.status, answer.headers(), answer.body()

Middleware for ASGI (FastAPI, Starlette, Django) is in `tollgate.asgi`, for WSGI (Flask, Django) in
`tollgate.wsgi`.
"""

from . import asgi, wsgi
from ._tollgate import Agent, Allowed, Copies, Denied, Estimate, Hold, Rate, Revoked

__all__ = ["Agent", "Allowed", "Copies", "Denied", "Estimate", "Hold", "Rate", "Revoked", "asgi", "wsgi"]
