"""The bare handler of a function: it imports boto3 and makes the clients that the function makes, and no more.

Which those are is recorded while the function is imported, so that nobody has to keep a list.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.emulator.environment import child_environment

NOBODY = "http://127.0.0.1:9"
# -S, -s and -P: nothing of this environment but the standard library, and what PYTHONPATH says.
ISOLATED = ("-S", "-s", "-P")
# A handler that imports nothing.
EMPTY = "def handler(event, context):\n    return {}\n"
MARK = "@clients@"
RECORD = f"""
import json
import boto3
made, make = [], boto3.client

def record(service, **options):
    config = options.pop("config", None)
    assert not options, options
    made.append([service, config._user_provided_options if config else {{}}])
    return make(service, **({{"config": config}} if config else {{}}))

boto3.client = record
import app
print({MARK!r} + json.dumps(made))
"""


@dataclass(frozen=True)
class Client:
    """A client that a function makes when it is imported. `config`: what its botocore Config was given."""

    service: str
    config: Mapping[str, Any]


class Unusable(RuntimeError):
    """A function could not be imported; the text is what Python said."""


def clients(path: Sequence[Path], environment: Mapping[str, str]) -> list[Client]:
    """What the `app` on this path makes. Raises Unusable."""
    output = run(RECORD, path, environment).stdout
    (line,) = [line for line in output.splitlines() if line.startswith(MARK)]
    return [Client(service, config) for service, config in json.loads(line.removeprefix(MARK))]


def handler(made: Sequence[Client]) -> str:
    """The source of a module `app` that makes them."""
    lines = ["import boto3", "from botocore.config import Config", ""]
    lines += [
        f"client_{number} = boto3.client({client.service!r}, config=Config(**{dict(client.config)!r}))"
        for number, client in enumerate(made)
    ]
    return "\n".join([*lines, "", "", EMPTY])


def run(code: str, path: Sequence[Path], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, as a container starts it. Raises Unusable."""
    variables = {"PYTHONPATH": ":".join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, *ISOLATED, "-c", code]
    environment = child_environment(NOBODY, variables)
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise Unusable(ran.stderr)
    return ran
