"""Runs pytest in forks of a process that has imported the large packages, which takes most of a guard's time.

It is started as a script, and imports nothing of this project: each fork imports the code of its own tree.

Each line of input is a run: {"tree": folder, "arguments": [...], "log": file, "seconds": number}. The answer is a line
with pytest's exit code, or null if the run did not end in time. The server ends with its input.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import NoReturn

PACKAGES = (
    "aws_lambda_powertools.metrics",
    "aws_lambda_powertools.utilities.data_classes",
    "aws_xray_sdk.core",
    "boto3",
    "botocore.docs.service",
    "hypothesis",
    "jsonschema",
    "moto.cloudwatch.models",
    "moto.dynamodb.models",
    "moto.s3.models",
    "moto.sqs.models",
    "moto.stepfunctions.models",
    "pytest",
    "rich.console",
    "typer",
    "yaml",
)


def serve() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches this process too, and must not print a traceback
    for package in PACKAGES:
        importlib.import_module(package)
    gc.freeze()  # the forks need not look through these packages for garbage
    for line in sys.stdin:
        print(json.dumps(_run(**json.loads(line))), flush=True)


def _run(tree: str, arguments: list[str], log: str, seconds: float) -> int | None:
    child = os.fork()
    if not child:
        _become_pytest(tree, arguments, log)
    timer = threading.Timer(seconds, _kill, (child,))
    timer.start()
    _, status = os.waitpid(child, 0)
    timer.cancel()
    timer.join()
    code = os.waitstatus_to_exitcode(status)
    return None if code == -signal.SIGKILL else code


def _kill(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _become_pytest(tree: str, arguments: list[str], log: str) -> NoReturn:
    """As `python -m pytest` in the tree. Never returns."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(tree)
        sys.path.insert(0, tree)
        sys.argv = ["pytest", *arguments]
        code = int(importlib.import_module("pytest").main(arguments))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
