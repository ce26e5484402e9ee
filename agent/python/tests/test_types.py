"""The type stubs, as mypy reads them.

What stays true: the README's example has no fault of types, so that a service needs no casts to use an answer.
"""

import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


def test_mypy_accepts_the_readmes_example(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "example.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
