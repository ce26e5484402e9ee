"""Frameworks, as people use them, before a real aggregator."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
import tollgate
import tollgate.asgi
import tollgate.wsgi

HERE = os.path.dirname(__file__)
EXAMPLES = os.path.join(HERE, "..", "examples")


def test_middleware_comes_with_the_package():
    # Alone: other tests import the modules.
    lines = "import tollgate; tollgate.asgi.LimitMiddleware, tollgate.wsgi.LimitMiddleware"
    subprocess.run([sys.executable, "-c", lines], check=True)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def get(url, tenant):
    request = urllib.request.Request(url, headers={"x-tenant": tenant})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, {name.lower(): value for name, value in error.headers.items()}, error.read()


@pytest.fixture(
    params=[
        ["uvicorn", "with_fastapi:app"],
        ["gunicorn", "with_flask:app"],
        ["gunicorn", "--preload", "--workers", "2", "with_flask:app"],
        ["gunicorn", "with_django:application"],
    ],
    ids=["fastapi", "flask", "flask-preload", "django"],
)
def service(request, aggregator):
    name, *rest = request.param
    port = free_port()
    place = {"uvicorn": ["--port", str(port)], "gunicorn": ["--bind", f"127.0.0.1:{port}"]}[name]
    process = subprocess.Popen(
        [sys.executable, "-m", name, *place, *rest],
        cwd=EXAMPLES,
        # No other variable of agents in this environment.
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("TOLLGATE_")},
            "TOLLGATE_AGGREGATORS": aggregator,
        },
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def test_a_service_is_limited(service):
    end = time.monotonic() + 20
    while True:
        try:
            get(service + "/", "nobody")
            break
        except OSError:
            assert time.monotonic() < end, "it does not listen"
            time.sleep(0.05)
    answers = []
    while time.monotonic() < end and (not answers or answers[-1][0] != 429):
        answers.append(get(service + "/search", "acme"))
        time.sleep(0.02)
    status, headers, body = answers[-1]
    assert status == 429, answers
    assert 5 <= len(answers) - 1
    assert all(answer[0] == 200 for answer in answers[:-1])
    assert 0 < int(headers["retry-after"]) <= 60
    assert headers["content-type"].startswith("application/problem+json")
    assert b'"status":429' in body
    assert get(service + "/search", "globex")[0] == 200


def test_asgi_middleware_holds_copies_to_the_end(aggregator):
    import asyncio

    agent = tollgate.Agent([aggregator])
    exports = agent.copies("api.exports")
    assert agent.ready(10)
    held = []

    async def app(scope, receive, send):
        held.append(exports.held("acme"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        held.append(exports.held("acme"))
        await send({"type": "http.response.body", "body": b"two"})
        # A background task, after the response.
        held.append(exports.held("acme"))

    middleware = tollgate.asgi.HoldMiddleware(app, exports, tollgate.asgi.header("x-tenant"))
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "headers": [(b"x-tenant", b"acme")]}
    asyncio.run(middleware(scope, None, send))
    assert held == [1, 1, 0] and exports.held("acme") == 0
    keep = [exports.reserve("acme"), exports.reserve("acme")]
    end = time.monotonic() + 10
    # Until the aggregators announce that all copies are in use.
    while exports.reserve("acme"):
        assert time.monotonic() < end
    sent.clear()
    asyncio.run(middleware(scope, None, send))
    assert sent[0]["status"] == 429 and len(held) == 3 and all(keep)
    asyncio.run(middleware({"type": "http", "headers": []}, None, send))
    assert middleware.undecided == 1


def test_wsgi_middleware_holds_copies_to_the_end(aggregator):
    agent = tollgate.Agent([aggregator])
    exports = agent.copies("api.exports")
    assert agent.ready(10)

    def app(environ, start_response):
        start_response("200 OK", [])
        return iter([b"one", b"two"])

    middleware = tollgate.wsgi.HoldMiddleware(app, exports, tollgate.wsgi.header("X-Tenant"))
    started = []
    parts = middleware({"HTTP_X_TENANT": "acme"}, lambda *head: started.append(head))
    assert exports.held("acme") == 1 and list(parts) == [b"one", b"two"]
    parts.close()
    assert exports.held("acme") == 0

    def fails(environ, start_response):
        raise KeyError("a mistake")

    with pytest.raises(KeyError):
        tollgate.wsgi.HoldMiddleware(fails, exports)({"REMOTE_ADDR": "acme"}, None)
    assert exports.held("acme") == 0


def test_a_headers_bytes_are_one_domain_whoever_reads_them():
    asgi, wsgi = tollgate.asgi.header("X-Tenant"), tollgate.wsgi.header("X-Tenant")
    for sent, domain in [
        ("\u00fcber".encode(), "\u00fcber"),
        (b" acme\t", "acme"),
        (b"\xfc", "\ufffd"),
        (b" ", None),
    ]:
        assert asgi({"headers": [(b"x-tenant", sent)]}) == domain
        assert wsgi({"HTTP_X_TENANT": sent.decode("latin-1")}) == domain


def test_a_mistake_of_the_service_lets_requests_through_and_is_logged_once(aggregator, caplog):
    import asyncio

    agent = tollgate.Agent([aggregator])
    # The wrong way round: exports are limited by copies, and search by rate.
    exports, search = agent.rate("api.exports"), agent.copies("api.search")
    assert agent.ready(10)

    def is_mistake(call):
        try:
            call("acme")
        except ValueError:
            return True
        return False

    end = time.monotonic() + 10
    # Until the agent has received the limits, which a new aggregator first writes to its log.
    while not (is_mistake(exports.hit) and is_mistake(search.reserve)):
        assert time.monotonic() < end
    environ = {"REQUEST_METHOD": "GET", "REMOTE_ADDR": "acme"}
    scope = {"type": "http", "headers": [], "client": ("acme", 1)}

    def of_wsgi(environ, start_response):
        return [b"served"]

    served = []

    async def of_asgi(scope, receive, send):
        served.append(scope)

    for limits in (
        tollgate.wsgi.LimitMiddleware(of_wsgi, exports),
        tollgate.wsgi.HoldMiddleware(of_wsgi, search),
    ):
        assert [limits(environ, None) for _ in range(2)] == [[b"served"]] * 2 and limits.misused == 2
    for limits in (
        tollgate.asgi.LimitMiddleware(of_asgi, exports),
        tollgate.asgi.HoldMiddleware(of_asgi, search),
    ):
        for _ in range(2):
            asyncio.run(limits(scope, None, None))
        assert limits.misused == 2
    assert len(served) == 4
    assert len([line for line in caplog.records if "let through without a limit" in line.getMessage()]) == 4


def test_a_domain_or_cost_of_the_wrong_type_is_a_mistake_of_the_service():
    import asyncio

    agent = tollgate.Agent(["127.0.0.1:1"])
    rate, copies = agent.rate("api.search"), agent.copies("api.exports")
    served = []
    before = tollgate.asgi.counts["misused"]

    async def app(scope, receive, send):
        served.append(scope)

    for key, cost in [(7, 1), (b"acme", 1), ("acme", 1.5), ("acme", "2"), ("acme", -1), ("acme", 1 << 80)]:
        for limits in (
            tollgate.asgi.LimitMiddleware(app, rate, lambda scope: key, cost=lambda scope: cost),
            tollgate.asgi.HoldMiddleware(app, copies, lambda scope: key, cost=lambda scope: cost),
        ):
            asyncio.run(limits({"type": "http", "headers": []}, None, None))
            assert limits.misused == 1, (key, cost)
    assert len(served) == 12 and tollgate.asgi.counts["misused"] == before + 12


def test_a_domain_that_is_not_unicode_has_a_limit(aggregator):
    import asyncio

    agent = tollgate.Agent([aggregator])
    exports = agent.copies("api.exports")
    assert agent.ready(10)
    held = []

    def of_wsgi(environ, start_response):
        held.append(exports.held("\ufffd"))
        return []

    async def of_asgi(scope, receive, send):
        held.append(exports.held("\ufffd"))

    wsgi = tollgate.wsgi.HoldMiddleware(of_wsgi, exports, lambda environ: "\ud800")
    wsgi({}, None).close()
    asgi = tollgate.asgi.HoldMiddleware(of_asgi, exports, lambda scope: "\udcff")
    asyncio.run(asgi({"type": "http", "headers": []}, None, None))
    assert held == [1, 1] and wsgi.misused == asgi.misused == 0


def test_a_refused_head_has_no_body(aggregator):
    agent = tollgate.Agent([aggregator])
    exports = agent.copies("api.exports")
    assert agent.ready(10)
    keep = [exports.reserve("acme"), exports.reserve("acme")]
    end = time.monotonic() + 10
    while refusal := exports.reserve("acme"):
        assert time.monotonic() < end
    assert all(keep)

    class Refusing:
        # One refusal for both requests: what an agent knows of a limit, and so the text, changes in between.
        def reserve(self, domain, copies):
            return refusal

    middleware = tollgate.wsgi.HoldMiddleware(None, Refusing())
    started = []

    def start(status, headers):
        started.append((status, dict(headers)["content-length"]))

    (body,) = middleware({"REQUEST_METHOD": "GET", "REMOTE_ADDR": "acme"}, start)
    assert list(middleware({"REQUEST_METHOD": "HEAD", "REMOTE_ADDR": "acme"}, start)) == []
    assert [code for code, _ in started] == ["429 Too Many Requests"] * 2
    assert [int(length) for _, length in started] == [len(body)] * 2


def test_only_a_cost_of_zero_exempts_a_request():
    import asyncio

    agent = tollgate.Agent(["127.0.0.1:1"])
    rate, copies = agent.rate("api.search"), agent.copies("api.exports")
    served = []

    async def of_asgi(scope, receive, send):
        served.append(scope)

    def of_wsgi(environ, start_response):
        served.append(environ)
        return []

    for cost, misused in [(0, 0), (None, 1), (False, 1), (0.0, 1), ("", 1), ((), 1)]:
        for limits in (
            tollgate.asgi.LimitMiddleware(of_asgi, rate, lambda scope: "acme", cost=lambda scope: cost),
            tollgate.asgi.HoldMiddleware(of_asgi, copies, lambda scope: "acme", cost=lambda scope: cost),
        ):
            asyncio.run(limits({"type": "http", "headers": []}, None, None))
            assert limits.misused == misused, cost
        for limits in (
            tollgate.wsgi.LimitMiddleware(of_wsgi, rate, lambda environ: "acme", cost=lambda environ: cost),
            tollgate.wsgi.HoldMiddleware(of_wsgi, copies, lambda environ: "acme", cost=lambda environ: cost),
        ):
            limits({}, None)
            assert limits.misused == misused, cost
    assert len(served) == 24 and agent.stats()["hits_accepted"] == 0
