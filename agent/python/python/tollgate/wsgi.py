"""Limits before a WSGI application: Flask, Django.

    app.wsgi_app = tollgate.wsgi.LimitMiddleware(app.wsgi_app, agent.rate("api.search"), tollgate.wsgi.header("X-Tenant"))

`key` is a function that takes the environ and returns the domain, or None. A request without a domain is let through,
or counted for `or_domain` if that is given. `cost` is a function that takes the environ and returns a number of copies;
a request that costs 0 is not limited. A call that makes no sense, like one about a resource that is limited in the
other way, or for a cost that is no number, is a mistake of the service: the request is let through, counted in
`misused`, and the first one is logged.
"""

import logging as _logging
from http import HTTPStatus as _HTTPStatus

_log = _logging.getLogger("tollgate")

# Of all middleware of this module in this process: requests without a domain, and requests whose call was invalid. Both
# were let through without a limit. Frameworks keep the middleware they make to themselves, so the counts are here, too.
counts = {"undecided": 0, "misused": 0}


def header(name):
    """A key: the value of a request header, which is UTF-8. A client that can set this header can use any domain."""
    wanted = "HTTP_" + name.upper().replace("-", "_")

    def key(environ):
        # WSGI gives each byte as a character (PEP 3333).
        value = environ.get(wanted, "").strip(" \t").encode("latin-1", "replace")
        return value.decode("utf-8", "replace") or None

    return key


def client(environ):
    """A key: the address of the peer. Behind a proxy that is the proxy's address, unless other middleware
    (werkzeug's ProxyFix) replaces it by the client's."""
    return environ.get("REMOTE_ADDR") or None


def _refuse(environ, start_response, denied):
    body = denied.body().encode()
    headers = list(denied.headers().items()) + [("content-length", str(len(body)))]
    start_response(f"{denied.status} {_HTTPStatus(denied.status).phrase}", headers)
    # The answer to HEAD has the fields of the one to GET, and no body.
    return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]


class _Middleware:
    def __init__(self, app, key, cost, skip, or_domain):
        self.app, self.key, self.cost, self.skip, self.or_domain = app, key, cost, skip, or_domain
        self.undecided = 0
        self.misused = 0

    def _subject(self, environ):
        """The domain and copies of a request; None if the request is not limited."""
        if self.skip and self.skip(environ):
            return None
        domain = self.key(environ) or self.or_domain
        if domain is None:
            self.undecided += 1
            counts["undecided"] += 1
            return None
        copies = self.cost(environ) if self.cost else 1
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

    def __call__(self, environ, start_response):
        subject = self._subject(environ)
        if subject is None:
            return self.app(environ, start_response)
        answer = self._asked(self.rate.hit, subject)
        if answer is None:
            return self.app(environ, start_response)
        if not answer:
            return _refuse(environ, start_response, answer)
        told = answer.headers() if answer.remaining is not None else None
        if not told:
            return self.app(environ, start_response)

        def start_told(status, headers, *error):
            return start_response(status, list(headers) + list(told.items()), *error)

        return self.app(environ, start_told)


class _HeldBody:
    """The parts of a response, and a hold that is released once they have been sent."""

    def __init__(self, parts, hold):
        self.parts, self.hold = parts, hold

    def __iter__(self):
        yield from self.parts

    def close(self):
        try:
            if hasattr(self.parts, "close"):
                self.parts.close()
        finally:
            self.hold.release()


class HoldMiddleware(_Middleware):
    """How many at a time: holds copies from the request to the end of its response."""

    def __init__(self, app, copies, key=client, *, cost=None, skip=None, or_domain=None):
        super().__init__(app, key, cost, skip, or_domain)
        self.copies = copies

    def __call__(self, environ, start_response):
        subject = self._subject(environ)
        if subject is None:
            return self.app(environ, start_response)
        hold = self._asked(self.copies.reserve, subject)
        if hold is None:
            return self.app(environ, start_response)
        if not hold:
            return _refuse(environ, start_response, hold)
        try:
            return _HeldBody(self.app(environ, start_response), hold)
        except BaseException:
            hold.release()
            raise
