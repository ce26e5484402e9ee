"""A real aggregator for the tests: the program that TOLLGATE_BINARY names, or `tollgate` of a build of the workspace."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]

LIMITS = """
version = 1
rules = 2
[rate."api.search"]
windows = ["5/1m"]
[rate."api.free"]
windows = ["1000000/s"]
[rate."llm.tokens"]
windows = ["100/1m"]
[copies."api.exports"]
limit = 2
[copies."batch"]
limit = 5
on_excess = "give-back"
[copies."brief"]
limit = 2
max_age = "1s"
"""


def binary():
    named = os.environ.get("TOLLGATE_BINARY")
    built = [ROOT / "target" / kind / "tollgate" for kind in ("debug", "release")]
    found = [pathlib.Path(named)] if named else [path for path in built if path.exists()]
    assert found, "no aggregator: cargo build --bin tollgate, or TOLLGATE_BINARY=PATH"
    return found[0]


TLS = """
[listen]
probe = "127.0.0.1:0"
[listen.tls]
cert = "keys/tollgate.pem"
key = "keys/tollgate.key"
[security]
tokens_file = "keys/tokens.toml"
"""


def is_ready(address):
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=5) as answer:
            return json.load(answer)["ready"]
    except OSError:
        return False


def listening(process):
    """The addresses of an aggregator that has just been started."""
    for line in process.stderr:
        if re.search(r"listening .*agents=\S+", line):
            return dict(re.findall(r"(agents|http|feed|probe)=(\S+)", line))
    raise AssertionError("the aggregator does not listen")


@contextlib.contextmanager
def serving(directory, *more):
    """The addresses, by name (agents, http, feed), of an aggregator that is ready.

    Calls that the log takes before the limits are in force count nowhere."""
    limits = directory / "limits.toml"
    limits.write_text(LIMITS)
    any_port = "127.0.0.1:0"
    process = subprocess.Popen(
        [binary(), "serve", "--with-stdin", "--journal", directory / "journal", "--limits", limits]
        + ["--http", any_port, "--agents", any_port, "--feed", any_port, *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
    )
    try:
        addresses = listening(process)
        # With TLS only the address for probes answers without it.
        probe = addresses.get("probe", addresses["http"])
        end = time.monotonic() + 30
        while not is_ready(probe):
            assert time.monotonic() < end, "the aggregator is not ready"
            time.sleep(0.005)
        yield addresses
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def addresses(tmp_path):
    with serving(tmp_path) as addresses:
        yield addresses


@pytest.fixture
def aggregator(addresses):
    """The address that agents need."""
    return addresses["agents"]


@pytest.fixture
def secured(tmp_path):
    """The address of an aggregator with TLS, and the directory of its keys, with a token for agents."""
    for args in (["ca"], ["cert", "tollgate"], ["token", "services", "--role", "agent"]):
        subprocess.run([binary(), "keys", "--dir", "keys", *args], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "tollgate.toml").write_text(TLS)
    with serving(tmp_path, "--config", "tollgate.toml") as addresses:
        yield addresses["agents"], tmp_path / "keys"
