"""A real aggregator for the tests: the program that TOLLGATE_BINARY names, or `tollgate` of a build of the workspace."""

import contextlib
import os
import pathlib
import re
import subprocess

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
[listen.tls]
cert = "keys/tollgate.pem"
key = "keys/tollgate.key"
[security]
tokens_file = "keys/tokens.toml"
"""


@contextlib.contextmanager
def serving(directory, *more):
    """An aggregator's addresses by name: agents, http, feed."""
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
        for line in process.stderr:
            if re.search(r"listening .*agents=\S+", line):
                yield dict(re.findall(r"(agents|http|feed)=(\S+)", line))
                break
        else:
            raise AssertionError("the aggregator does not listen")
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
