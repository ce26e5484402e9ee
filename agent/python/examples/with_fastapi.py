"""uvicorn with_fastapi:app

TOLLGATE_AGGREGATORS=127.0.0.1:7401 names the aggregator; without one every call is let through.
"""

import tollgate
from fastapi import FastAPI
from tollgate.asgi import LimitMiddleware, header

agent = tollgate.Agent.from_env()
app = FastAPI()
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
