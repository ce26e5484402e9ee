"""Limits before an ASGI application: FastAPI, Starlette, Django, Quart.

    app.add_middleware(tollgate.asgi.LimitMiddleware, rate=agent.rate("api.search"), key=tollgate.asgi.header("x-tenant"))

`key` is a function that takes the scope and returns the domain, or None. A request without a domain is let through, or
counted for `or_domain` if that is given. `cost` is a function that takes the scope and returns a number of copies; a
request that costs 0 is not limited. Anything but an HTTP request passes. A call that makes no sense, like one about a
resource that is limited in the other way, or for a cost that is no number, is a mistake of the service: the request is
let through, counted in `misused`, and the first one is logged.
"""

import logging as _logging

_log = _logging.getLogger("tollgate")

# Of all middleware of this module in this process: requests without a domain, and requests whose call was invalid. Both
# were let through without a limit. Frameworks keep the middleware they make to themselves, so the counts are here, too.
counts = {"undecided": 0, "misused": 0}


def header(name):
    """A key: the value of a request header, which is UTF-8. A client that can set this header can use any domain."""
    wanted = name.lower().encode("latin-1")

    def key(scope):
        for found, value in scope["headers"]:
            if found == wanted:
                return value.strip(b" \t").decode("utf-8", "replace") or None
        return None

    return key


def client(scope):
    """A key: the address of the peer. Behind a proxy that is the proxy's address, unless the server is configured
    to trust the proxy (uvicorn --proxy-headers)."""
    peer = scope.get("client")
    return peer[0] if peer else None


async def _refuse(send, denied):
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in denied.headers().items()]
    body = denied.body().encode()
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": denied.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Middleware:
    def __init__(self, app, key, cost, skip, or_domain):
        self.app, self.key, self.cost, self.skip, self.or_domain = app, key, cost, skip, or_domain
        self.undecided = 0
        self.misused = 0

    def _subject(self, scope):
        """The domain and copies of a request; None if the request is not limited."""
        if scope["type"] != "http" or (self.skip and self.skip(scope)):
            return None
        domain = self.key(scope) or self.or_domain
        if domain is None:
            self.undecided += 1
            counts["undecided"] += 1
            return None
        copies = self.cost(scope) if self.cost else 1
        # Anything else that is false, like the None of a function without a return, is a mistake, which the call finds.
        is_exempt = isinstance(copies, int) and not isinstance(copies, bool) and copies == 0
        return None if is_exempt else (domain, copies)

    def _asked(self, call, subject):
        """The answer to a call; None if the service made a mistake, which is not the client's."""
        try:
            return call(*subject)
        except (OverflowError, TypeError, ValueError) as error:
            self.misused += 1
            counts["misused"] += 1
            if self.misused == 1:
                _log.error("requests are let through without a limit, since calls are invalid: %s", error)
            return None


class LimitMiddleware(_Middleware):
    """How often: counts each request of a domain."""

    def __init__(self, app, rate, key=client, *, cost=None, skip=None, or_domain=None):
        super().__init__(app, key, cost, skip, or_domain)
        self.rate = rate

    async def __call__(self, scope, receive, send):
        subject = self._subject(scope)
        if subject is None:
            return await self.app(scope, receive, send)
        answer = self._asked(self.rate.hit, subject)
        if answer is None:
            return await self.app(scope, receive, send)
        if not answer:
            return await _refuse(send, answer)
        told = answer.headers() if answer.remaining is not None else None
        if not told:
            return await self.app(scope, receive, send)

        async def send_told(message):
            if message["type"] == "http.response.start":
                more = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in told.items()]
                message = {**message, "headers": list(message.get("headers", ())) + more}
            await send(message)

        return await self.app(scope, receive, send_told)


class HoldMiddleware(_Middleware):
    """How many at a time: holds copies from the request to the end of its response."""

    def __init__(self, app, copies, key=client, *, cost=None, skip=None, or_domain=None):
        super().__init__(app, key, cost, skip, or_domain)
        self.copies = copies

    async def __call__(self, scope, receive, send):
        subject = self._subject(scope)
        if subject is None:
            return await self.app(scope, receive, send)
        hold = self._asked(self.copies.reserve, subject)
        if hold is None:
            return await self.app(scope, receive, send)

        async def send_held(message):
            await send(message)
            # What the service does after its response, background tasks for example, holds nothing.
            is_body = message["type"] == "http.response.body" and not message.get("more_body")
            if is_body or message["type"] == "http.response.pathsend":
                hold.release()

        with hold:
            if not hold:
                return await _refuse(send, hold)
            return await self.app(scope, receive, send_held)
