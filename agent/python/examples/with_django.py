"""gunicorn with_django:application

TOLLGATE_AGGREGATORS=127.0.0.1:7401 names the aggregator; without one every call is let through.
"""

import tollgate
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
from tollgate.wsgi import LimitMiddleware, header

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY="of an example")

urlpatterns = [
    path("", lambda request: JsonResponse({"try": "/search"})),
    path("search", lambda request: JsonResponse({"found": 1})),
]

agent = tollgate.Agent.from_env()
application = LimitMiddleware(
    get_wsgi_application(),
    agent.rate("api.search"),
    header("x-tenant"),
    skip=lambda environ: environ["PATH_INFO"] != "/search",
)
