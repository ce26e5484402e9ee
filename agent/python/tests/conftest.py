"""A real aggregator for the tests: the program that TOLLGATE_BINARY names, or `tollgate` of a build of the workspace."""

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
"""


def binary():
    named = os.environ.get("TOLLGATE_BINARY")
    built = [ROOT / "target" / kind / "tollgate" for kind in ("debug", "release")]
    found = [pathlib.Path(named)] if named else [path for path in built if path.exists()]
    assert found, "no aggregator: cargo build --bin tollgate, or TOLLGATE_BINARY=PATH"
    return found[0]


@pytest.fixture
def aggregator(tmp_path):
    """The address that agents need."""
    limits = tmp_path / "limits.toml"
    limits.write_text(LIMITS)
    any_port = "127.0.0.1:0"
    process = subprocess.Popen(
        [binary(), "serve", "--with-stdin", "--journal", tmp_path / "journal", "--limits", limits]
        + ["--http", any_port, "--agents", any_port, "--feed", any_port],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        for line in process.stderr:
            found = re.search(r"listening .*agents=(\S+)", line)
            if found:
                yield found.group(1)
                break
        else:
            raise AssertionError("the aggregator does not listen")
    finally:
        process.kill()
        process.wait()
