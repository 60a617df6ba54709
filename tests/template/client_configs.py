"""The client timeouts in a function's code, read without importing it: an import needs the function's settings."""

import ast
from pathlib import Path

from botocore.config import Config

from slotkeeper.aws.clients import client_config

ROOT = Path(__file__).resolve().parents[2]


def client_configs(function: str) -> dict[str, Config]:
    """Variable -> the result of its `client_config(...)` in `functions/<function>/app.py`."""
    assigned = [
        (statement.targets[0], statement.value)
        for statement in ast.parse((ROOT / "functions" / function / "app.py").read_text()).body
        if isinstance(statement, ast.Assign)
    ]
    return {
        target.id: client_config(**{str(given.arg): ast.literal_eval(given.value) for given in call.keywords})
        for target, call in assigned
        if isinstance(target, ast.Name)
        and isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "client_config"
    }


def longest_call(config: Config) -> float:
    """The seconds of a call without an answer: all attempts time out, with the longest backoff between them."""
    attempts = config.retries["total_max_attempts"]
    return attempts * (config.connect_timeout + config.read_timeout) + sum(2**n for n in range(attempts - 1))
