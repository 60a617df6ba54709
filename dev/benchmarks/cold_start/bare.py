"""The bare handler of a function, which only imports boto3 and creates the same clients as the function.

The clients are recorded while the function is imported, so that no list has to be maintained.
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

UNUSED_ENDPOINT = "http://127.0.0.1:9"
# -S, -s and -P: the standard library and PYTHONPATH only.
ISOLATED = ("-S", "-s", "-P")
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
    """A client that a function creates when it is imported. `config`: the options of its botocore Config."""

    service: str
    config: Mapping[str, Any]


class Unusable(RuntimeError):
    """A function could not be imported. The text is Python's output."""


def clients(path: Sequence[Path], environment: Mapping[str, str]) -> list[Client]:
    """The clients that the `app` on this path creates. Raises Unusable."""
    output = run(RECORD, path, environment).stdout
    (line,) = [line for line in output.splitlines() if line.startswith(MARK)]
    return [Client(service, config) for service, config in json.loads(line.removeprefix(MARK))]


def handler(made: Sequence[Client]) -> str:
    """The source of a module `app` that creates these clients."""
    lines = ["import boto3", "from botocore.config import Config", ""]
    lines += [
        f"client_{number} = boto3.client({client.service!r}, config=Config(**{dict(client.config)!r}))"
        for number, client in enumerate(made)
    ]
    return "\n".join([*lines, "", "", EMPTY])


def run(code: str, path: Sequence[Path], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Python in another process, as a container starts it. Raises Unusable."""
    variables = {"PYTHONPATH": ":".join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, *ISOLATED, "-c", code]
    environment = child_environment(UNUSED_ENDPOINT, variables)
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise Unusable(ran.stderr)
    return ran
