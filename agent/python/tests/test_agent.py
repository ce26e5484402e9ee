"""The agent against a real aggregator."""

import ctypes
import json
import os
import re
import subprocess
import sys
import time
import urllib.request

import http_sfv
import pytest
import tollgate


@pytest.fixture
def agent(aggregator):
    agent = tollgate.Agent([aggregator], name="tests")
    agent.rate("api.search"), agent.rate("llm.tokens"), agent.copies("api.exports")
    assert agent.ready(10)
    yield agent
    agent.shutdown(2)


def until(what, within=10):
    end = time.monotonic() + within
    while time.monotonic() < end:
        found = what()
        # A refusal is false, but it is a result.
        if found is not None:
            return found
        time.sleep(0.005)
    raise AssertionError("it did not come about")


def denied(rate, domain):
    """Calls until one is refused."""
    return until(lambda: None if (answer := rate.hit(domain)) else answer)


def test_a_limit_is_kept_and_says_when_to_come_again(agent):
    search = agent.rate("api.search")
    answers = [search.hit("acme") for _ in range(5)]
    assert all(answers) and [answer.copies for answer in answers] == [1] * 5
    refused = denied(search, "acme")
    assert not refused
    assert refused.status == 429
    assert 0 < refused.retry_after <= 60
    headers = refused.headers()
    assert headers["content-type"] == "application/problem+json"
    assert headers["ratelimit"].startswith('"window-0";r=0;t=')
    assert '"status":429' in refused.body()
    assert "code" in str(refused)
    assert search.hit("globex")
    assert not search.peek("acme")


def test_what_can_never_be_granted_is_told_at_once_and_what_makes_no_sense_raises(agent):
    search = agent.rate("api.search")
    # Once the agent has received the limits.
    too_many = until(lambda: None if (answer := search.hit("initech", 6)) else answer)
    assert too_many.status == 429 and too_many.retry_after is None
    with pytest.raises(ValueError, match="0 copies"):
        search.hit("initech", 0)
    with pytest.raises(ValueError):
        tollgate.Agent(["nobody:0:1"])
    with pytest.raises(ValueError):
        agent.ready(-1)


def fields(headers, name):
    """A field as a parser of structured fields (RFC 9651) reads it: each name with its parameters."""
    found = http_sfv.List()
    found.parse(headers[name].encode())
    return {item.value: dict(item.params) for item in found}


def test_headers_are_structured_fields(agent):
    refused = denied(agent.rate("api.search"), "acme")
    headers = refused.headers()
    assert fields(headers, "ratelimit-policy") == {"window-0": {"q": 5, "w": 60}}
    (name, limit), = fields(headers, "ratelimit").items()
    assert name == "window-0" and limit["r"] == 0
    # A client that waits for Retry-After has waited for the reset, too.
    assert limit["t"] <= int(headers["retry-after"])
    assert json.loads(refused.body())["violated-policies"] == [name]

    exports = agent.copies("api.exports")
    holds = [exports.reserve("acme") for _ in range(2)]
    full = until(lambda: None if (answer := exports.reserve("acme")) else answer)
    policy = fields(full.headers(), "ratelimit-policy")
    assert policy == {"copies": {"q": 2, "qu": "concurrent-requests"}}
    assert fields(full.headers(), "ratelimit") == {"copies": {"r": 0}}
    for hold in holds:
        hold.release()


def test_an_estimate_is_settled_once(agent):
    tokens = agent.rate("llm.tokens")
    estimate = tokens.hit_estimated("acme", 80)
    assert estimate
    estimate.settle(10)
    with pytest.raises(RuntimeError, match="settled already"):
        estimate.settle(10)
    # 70 were given back.
    assert tokens.hit("acme", 60)


def test_copies_are_held_and_given_back(agent):
    exports = agent.copies("api.exports")
    with exports.reserve("acme") as first:
        assert first and first.copies == 1
        second = exports.reserve("acme")
        assert second and exports.held("acme") == 2
        with until(lambda: None if (answer := exports.reserve("acme")) else answer) as third:
            assert not third and third.status == 429
        second.release()
        second.release()
        assert exports.held("acme") == 1
    assert exports.held("acme") == 0


def test_copies_are_given_back_in_parts(agent):
    exports = agent.copies("api.exports")
    with exports.reserve("parts", 2) as hold:
        assert hold.revoked is None
        assert hold.release(1) and (hold.copies, exports.held("parts")) == (1, 1)
        for copies in (0, 2, -1, 2**32):
            with pytest.raises(ValueError, match="copies"):
                hold.release(copies)
        with pytest.raises(TypeError):
            hold.release("1")
        assert hold.release(copies=1) and exports.held("parts") == 0
        assert hold.revoked is None
    assert hold.release() and hold.release(1) and hold.release(None)
    assert hold.copies == 0 and hold.revoked is None


def test_copies_that_are_too_many_are_asked_back(agent, aggregator):
    # Two agents take three of five copies each: no denial is known, and one copy is too many.
    other = tollgate.Agent([aggregator], name="other")
    handles = [agent.copies("batch"), other.copies("batch")]
    assert agent.ready(10) and other.ready(10)
    one, two = (copies.reserve("acme", 3) for copies in handles)
    hold = until(lambda: next((hold for hold in (one, two) if hold.revoked), None))
    assert (hold.revoked.reason, hold.revoked.copies) == ("give-back", 1)
    assert str(hold.revoked) == "1 copies are too many for the domain"
    assert hold.release(hold.revoked.copies)
    assert one.revoked is None and two.revoked is None
    other.shutdown(2)
    assert two.revoked.reason == "ended" and str(two.revoked) == "the agent was shut down"
    one.release()


def test_a_hold_ends_at_its_greatest_age(agent):
    brief = agent.copies("brief")
    assert agent.ready(10)
    with brief.reserve("acme", 2) as hold:
        revoked = until(lambda: hold.revoked)
        assert (revoked.reason, revoked.copies) == ("ended", 2)
        assert str(revoked) == "the hold was ended at its greatest age"
        assert repr(revoked) == 'Revoked(reason="ended", copies=2)'
        assert not hold.release(1) and hold.copies == 2


def test_nobody_is_refused_where_no_aggregator_answers():
    agent = tollgate.Agent(["127.0.0.1:1"])
    search = agent.rate("api.search")
    answers = [search.hit("acme") for _ in range(100)]
    assert all(answers) and all(answer.blind for answer in answers)
    assert agent.stats()["hits_accepted"] == 100


def test_a_child_has_an_agent_of_its_own(agent):
    search = agent.rate("api.search")
    held = agent.copies("api.exports").reserve("acme")
    reader, writer = os.pipe()
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            # The parent keeps what it holds.
            assert held.release(1) and held.copies == 1 and held.revoked is None
            held.release()
            assert agent.copies("api.exports").held("acme") == 0
            refused = denied(search, "forked")
            os.write(writer, b"x" if refused.status == 429 else b"-")
            stats = agent.stats()
            assert stats["hits_dropped"] == 0
            os._exit(0)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    assert statuses == [0, 0]
    assert os.read(reader, 2) == b"xx"
    assert agent.copies("api.exports").held("acme") == 1
    # The parent continues, and knows what its children used.
    denied(search, "forked")


def in_child(run, fork=os.fork):
    """What a function returns in a forked child."""
    reader, writer = os.pipe()
    child = fork()
    if child == 0:
        try:
            os.write(writer, repr(run()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


def test_a_fork_without_the_interpreter_is_noticed(agent):
    # As uWSGI forks: no function of os.register_at_fork is called.
    fork = ctypes.PyDLL(None).fork
    search = agent.rate("api.search")
    denied(search, "forked apart")
    answer = in_child(lambda: (agent.ready(10), denied(search, "forked apart").status), fork)
    assert answer == "(True, 429)"


def test_a_child_that_may_not_read_its_settings_lets_calls_through(aggregator, tmp_path):
    key = tmp_path / "domain.key"
    key.write_text(os.urandom(32).hex())
    key.chmod(0o600)
    agent = tollgate.Agent([aggregator], domain_key_file=str(key))
    search, exports = agent.rate("api.search"), agent.copies("api.exports")
    assert agent.ready(10)
    key.unlink()

    def calls():
        answers = [search.hit("acme") for _ in range(20)] + [exports.reserve("acme", 9)]
        return all(answers), answers[0].blind, agent.ready(0.01), agent.stats()["welcomes"]

    assert in_child(calls) == "(True, True, False, 0.0)"
    agent.shutdown()
    assert in_child(lambda: bool(search.hit("acme"))) == "True"


def test_a_child_waits_for_the_limits_of_its_handles(agent):
    of_copies = agent.rate("api.exports")
    estimate = agent.rate("api.search").hit_estimated("waits", 1)
    assert agent.ready(10)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        try:
            assert agent.ready(10)
            for call in (lambda: of_copies.hit("waits"), lambda: estimate.settle(2)):
                try:
                    said.append(str(call()))
                except (RuntimeError, ValueError) as error:
                    said.append(str(error))
            os.write(writer, "\n".join(said).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    of_rate, settled = os.read(reader, 4096).decode().split("\n")
    assert "limited by copies, not by rate" in of_rate
    assert "made before a fork" in settled
    estimate.settle(2)


def test_mistakes_of_the_service_raise_a_value_error(agent):
    with pytest.raises(ValueError, match="expected at least one address"):
        tollgate.Agent([])
    search, exports = agent.rate("api.search"), agent.copies("api.exports")
    estimate = search.hit_estimated("globex", 1)
    for copies in (-1, 2**32, 10**30):
        for call in (
            lambda: search.hit("globex", copies),
            lambda: search.hit_estimated("globex", copies),
            lambda: search.record("globex", copies),
            lambda: exports.reserve("globex", copies),
            lambda: estimate.settle(copies),
        ):
            with pytest.raises(ValueError, match="copies: expected a number from 0 to 4294967295"):
                call()
    estimate.settle(1)
    with pytest.raises(TypeError):
        search.hit("globex", "1")
    assert search.peek("globex")
    of_copies = agent.rate("api.exports")

    def mistake():
        try:
            return of_copies.hit("globex") and None
        except ValueError as error:
            return str(error)

    # Once the agent has received the limits, which a new aggregator first writes to its log.
    assert "limited by copies, not by rate" in until(mistake)
    with pytest.raises(ValueError, match="limited by copies, not by rate"):
        of_copies.peek("globex")


def test_an_unpaired_surrogate_counts_as_a_replacement_character(agent):
    search, exports = agent.rate("api.search"), agent.copies("api.exports")
    assert search.hit("\ud800") and search.hit_estimated("\ud800", 1)
    search.record("\udcff", 3)
    assert until(lambda: None if search.peek("\ufffd") else True)
    assert not search.hit("\udfff") and not search.peek("\ud800")
    assert search.peek("\ufffd\ufffd")
    with exports.reserve("a\udcffb") as hold:
        assert hold and exports.held("a\ufffdb") == exports.held("a\ud800b") == 1
    # A pair of them is a character.
    with exports.reserve("\ud83d\ude00") as hold:
        assert hold and exports.held("\U0001f600") == 1
    with pytest.raises(TypeError, match="domain"):
        search.hit(b"acme")


SHORT = """
import os, sys, tollgate
def calls():
    agent = tollgate.Agent([sys.argv[1]])
    free = agent.rate("api.free")
    if sys.argv[2] == "forks" and os.fork() != 0:
        assert os.wait()[1] == 0
    for _ in range(100):
        free.hit("acme")
    return agent
if sys.argv[2] == "is dropped":
    calls()
else:
    kept = calls()
"""


def test_what_was_counted_is_sent_when_the_process_ends(addresses):
    for how in ("alone", "forks", "is dropped"):
        subprocess.run([sys.executable, "-c", SHORT, addresses["agents"], how], check=True)

    def granted():
        with urllib.request.urlopen(f"http://{addresses['http']}/metrics") as metrics:
            rows = re.findall(rb"^tollgate_hits_granted_total\S* (\S+)$", metrics.read(), re.MULTILINE)
        return True if sum(map(float, rows)) == 400 else None

    until(granted)


def test_the_end_of_a_process_does_not_wait_long_for_aggregators_that_are_away():
    lines = "import tollgate; a = tollgate.Agent(['127.0.0.1:1']); a.rate('api.free').hit('acme')"
    subprocess.run([sys.executable, "-c", lines], check=True, timeout=60)


def test_an_agent_speaks_tls_and_reports_missing_credentials(secured):
    address, keys = secured
    agent = tollgate.Agent(
        [address],
        tls_ca_file=str(keys / "ca.pem"),
        tls_server_name="tollgate",
        token_file=str(keys / "services.token"),
    )
    search = agent.rate("api.search")
    assert agent.ready(10) and not search.hit("acme").blind
    assert agent.stats()["welcomes"] == 1 and agent.stats()["connections_refused"] == 0
    with pytest.raises(ValueError):
        tollgate.Agent([address], tls_ca_file=str(keys / "none.pem"))
    with pytest.raises(ValueError, match="stderr"):
        tollgate.Agent([address], log="loud")
    lines = f"""
import time, tollgate
agent = tollgate.Agent([{address!r}], log="stderr")
search = agent.rate("api.search")
while not agent.stats()["connections_refused"]:
    time.sleep(0.005)
assert search.hit("acme").blind
"""
    done = subprocess.run([sys.executable, "-c", lines], check=True, timeout=60, capture_output=True, text=True)
    assert "because of credentials" in done.stderr


def test_an_argument_that_runs_code_finds_its_object_free():
    # Nothing runs between two calls but what converts an argument: other threads may run then.
    agent = tollgate.Agent(["127.0.0.1:1"])
    search, exports = agent.rate("api.search"), agent.copies("api.exports")
    hold, estimate = exports.reserve("acme", 3), search.hit_estimated("acme", 1)
    ran = []

    class Number:
        def __init__(self, value, act):
            self.value, self.act = value, act

        def __index__(self):
            ran.append(self.act())
            return self.value

    class Text(str):
        def encode(self, *args):
            ran.append(bool(exports.reserve("acme")) and bool(search.hit("acme")))
            return super().encode(*args)

    search.record("acme", Number(2, lambda: bool(search.hit("acme"))))
    search.record(Text("\ud800"))
    assert exports.held(Text("\ud800")) == 0
    assert hold.release(Number(1, lambda: hold.copies == 3)) and hold.copies == 2
    estimate.settle(Number(2, lambda: bool(estimate)))
    assert ran == [True] * 5


def test_a_refusal_has_its_code_or_the_most_at_once(agent):
    search = agent.rate("api.search")
    refused = denied(search, "acme")
    assert refused.code and refused.code == refused.headers()["x-tollgate-code"]
    assert refused.most is None
    for refused in (
        until(lambda: None if (answer := search.hit("initech", 6)) else answer),
        until(lambda: None if (answer := search.hit_estimated("initech", 6)) else answer),
    ):
        assert (refused.most, refused.code, refused.retry_after) == (5, None, None)
    full = until(lambda: None if (answer := agent.copies("api.exports").reserve("initech", 3)) else answer)
    assert (full.most, full.code) == (2, None)


def test_counters_tell_what_is_refused_and_what_is_not_recorded(agent):
    denied(agent.rate("api.search"), "acme")
    stats = agent.stats()
    assert 1 <= stats["refused_accepted"]
    assert stats["threads_panicked"] == stats["resources_without_room"] == stats["holds_unrecorded"] == 0
    agent.shutdown(2)
    with agent.copies("api.exports").reserve("acme"):
        assert agent.stats()["holds_unrecorded"] == 1
