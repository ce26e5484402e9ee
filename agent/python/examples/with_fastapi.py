"""uvicorn with_fastapi:app

TOLLGATE_AGGREGATORS=127.0.0.1:7401 names the aggregator; without one every call is let through.
"""

from contextlib import asynccontextmanager

import tollgate
from fastapi import FastAPI
from tollgate.asgi import LimitMiddleware, header

agent = tollgate.Agent.from_env()


@asynccontextmanager
async def lifespan(app):
    yield
    # uvicorn ends by the signal that it received, so that nothing is sent at the end of the interpreter.
    agent.shutdown()


app = FastAPI(lifespan=lifespan)
app.add_middleware(
    LimitMiddleware,
    rate=agent.rate("api.search"),
    key=header("x-tenant"),
    skip=lambda scope: scope["path"] != "/search",
)


@app.get("/")
async def index():
    return {"try": "/search"}


@app.get("/search")
async def search():
    return {"found": 1}
