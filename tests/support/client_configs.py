"""The timeouts of clients as a function's code states them, without importing it: that needs its settings."""

import ast
from pathlib import Path

from botocore.config import Config

from slotkeeper.aws.clients import client_config

ROOT = Path(__file__).resolve().parents[2]


def client_configs(function: str) -> dict[str, Config]:
    """Variable -> what `client_config` makes of the arguments that `functions/<function>/app.py` gives it."""
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
    """The seconds of a call that no attempt of is answered, with the longest waits between its attempts."""
    attempts = config.retries["total_max_attempts"]
    return attempts * (config.connect_timeout + config.read_timeout) + sum(2**n for n in range(attempts - 1))
