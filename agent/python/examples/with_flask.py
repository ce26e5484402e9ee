"""gunicorn --preload --workers 2 with_flask:app

TOLLGATE_AGGREGATORS=127.0.0.1:7401 names the aggregator; without one every call is let through.
"""

import tollgate
from flask import Flask
from tollgate.wsgi import LimitMiddleware, header

# Workers of --preload are forked from this process: each has an agent of its own with its first call.
agent = tollgate.Agent.from_env()
app = Flask(__name__)
app.wsgi_app = LimitMiddleware(
    app.wsgi_app,
    agent.rate("api.search"),
    header("x-tenant"),
    skip=lambda environ: environ["PATH_INFO"] != "/search",
)


@app.get("/")
def index():
    return {"try": "/search"}


@app.get("/search")
def search():
    return {"found": 1}
