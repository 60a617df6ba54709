"""`python -m tests.command.console_account CONTENT`: serves the console of an account, with the real clock.

CONTENT is `empty`, `healthy` or `troubled`. It prints an address that opens it once; with `--write` its buttons change
the account. The screenshots in docs/images are of `troubled`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from slotkeeper.retry.downstream.downstreams import DownstreamTable
from slotkeeper.retry.downstream.health import Breaker, Change, Health, State
from slotkeeper.slots.rate import Rate
from slotkeeper_cli import dead_letters, stack_connection
from slotkeeper_cli.output import Output
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.web.actions import Actions, Outcome
from slotkeeper_cli.web.server import HOST, serve
from tests.command import operator_account
from tests.command.account_contents import add_malformed, fail, job_run, send_dead_letter, succeed
from tests.command.operator_account import TEMPLATE, Operator, client, stack_of
from tests.simulation.account import account

MARKUP = "<img src=x onerror=document.title='run'>"  # a request's id
LONG = "a-request-id-of-eighty-characters-" + "0123456789" * 4 + "-the-end"
_ALARMS = {"JanitorSilentAlarm": "OK", "WorkDeadLetterAlarm": "ALARM", "StarterErrorsAlarm": "INSUFFICIENT_DATA"}


def _ago(minutes: float) -> None:
    """What follows happens this many minutes ago."""
    operator_account.NOW = time.time() - 60 * minutes  # type: ignore[misc]


def _each(number: int, minutes: float, step: float = 1) -> Iterator[str]:
    """Two digits for each of some requests, of which the first is sent that many minutes ago."""
    for each in range(number):
        _ago(minutes - step * each)
        yield f"{each:02}"


def fill_healthy(operator: Operator) -> None:
    """A stack that works: a busy process with a queue, and one that is idle."""
    operator.processes.create("nightly-load", 5, "sample-job")
    for number in _each(24, 58, 2):
        succeed(operator, f"day-{number}", "nightly-load")
    for number in _each(5, 9):
        operator.run_glue(operator.hold(f"running-{number}", "nightly-load"))
    for number in _each(12, 6, 1 / 3):
        operator.wait(f"waiting-{number}", "nightly-load", "high" if number == "07" else "normal")


def fill_troubled(operator: Operator) -> None:
    """A healthy stack, and eleven troubles."""
    fill_healthy(operator)
    limits = {"killed-execution": 2, "removed": 1, "no-slots": 1, "always-fails": 3, "late": 1, "paused-by-night": 4}
    for name, limit in (limits | dict.fromkeys((f"idle-{number:02}" for number in range(30)), 2)).items():
        operator.processes.create(name, limit, "sample-job")
    operator.processes.create("rated", 10, "sample-job", rate=Rate(2, 3600))
    _ago(40)
    operator.stop(operator.hold("killed", "killed-execution"))
    add_malformed(operator)
    for number in _each(20, 30):
        operator.wait(f"orphan-{number}", "removed")
    _remove(operator, "removed")
    operator.event_source = "Disabled"
    operator.send("never-accepted", "nightly-load")  # a queue that was purged looks as if nothing was sent
    for place in range(50):
        send_dead_letter(operator, f"not JSON {place}", f"m-{place}", place)
    operator.processes.set_limit("no-slots", 0)
    for number in _each(8, 25):
        operator.wait(f"stopped-{number}", "no-slots")
    for number in _each(31, 55):
        cause = job_run(f"KeyError: 'customer_{number}000' is not in the table")
        fail(operator, f"order-{number}", cause, "always-fails")
    fail(operator, LONG, "the bucket does not exist", "always-fails")
    for number in _each(4, 12):
        operator.wait(f"rated-{number}", "rated")
    for number in _each(3, 20, 0):
        name = operator.wait(f"late-{number}", "late", start_before="2100-01-01T00:00:00Z")
        operator.leave(name, "TOO_LATE", "StartBeforePassed", "its start_before has passed", "late")
    _open_breaker(operator)
    _ago(3)
    operator.processes.create("customers", 40, "sample-job", key_limit=4)
    operator.processes.set_key_limit("customers", 30, "large")
    for number, key in enumerate(["acme"] * 4 + ["large"] * 7 + ["contoso"] * 2 + [MARKUP]):
        operator.hold(f"run-{number}", "customers", key=key)
    for number, key in enumerate(["acme"] * 6 + ["a-customer-of-" + "0123456789" * 5] + [f"c{at}" for at in range(9)]):
        operator.wait(f"next-{number}", "customers", key=key)
    operator.wait("without", "customers")
    operator.hold(MARKUP, "killed-execution")
    operator.wait(LONG, "killed-execution", weight=2)
    operator.processes.pause("paused-by-night")
    operator.wait("during-pause", "paused-by-night")


def _open_breaker(operator: Operator) -> None:
    since = time.time() - 900
    change = Change(since, State.OPEN, "18 of 18 calls failed: HTTP 503")
    breaker = replace(Breaker(), state=State.OPEN, probe_at=time.time() + 30, changes=(change,))
    table = DownstreamTable(operator.dynamodb, operator.outputs["DownstreamTableName"])
    table.change("mail", lambda _: (replace(Health(), breaker=breaker), None))


def _remove(operator: Operator, process: str) -> None:
    operator.processes.pause(process)
    assert operator.processes.remove(process)


CONTENTS = {"empty": lambda operator: _remove(operator, "sample"), "healthy": fill_healthy, "troubled": fill_troubled}


@contextmanager
def _account(content: str) -> Iterator[Operator]:
    session = SimpleNamespace(client=lambda service, **_: client(service))
    stack_connection.boto3 = SimpleNamespace(Session=lambda **_: session)  # type: ignore[assignment]
    dead_letters.LONG_POLL_SECONDS = 0
    resources = [(name, name, "AWS::CloudWatch::Alarm") for name in _ALARMS if content != "empty"]
    template = {"GetTemplate": lambda _: {"TemplateBody": json.dumps(TEMPLATE)}}
    operator = Operator(account.AwsAccount().use())
    operator.aws.alarms = [_alarm(name, state if content == "troubled" else "OK") for name, state in _ALARMS.items()]
    with stack_of(*resources, **template):
        CONTENTS[content](operator)
        yield operator


def _alarm(name: str, state: str) -> dict[str, Any]:
    about = "A queue has messages. First step: run `slotkeeper dlq list`. Runbook: docs/runbooks.md"
    since, reason = datetime.fromtimestamp(time.time() - 600, UTC), "50 messages are above 0"
    shown = {"AlarmName": name, "AlarmDescription": about, "StateValue": state, "StateReason": reason}
    return shown | {"StateUpdatedTimestamp": since}


def main(content: str, *options: str) -> None:
    """Serve the console until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    account.install()  # before a client is created
    keys = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    os.environ |= keys | {"COLUMNS": "200"}
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    # The pages read while a command runs: their calls are not its calls.
    operator_account.check_page = lambda *_: None
    with _account(content) as operator:

        async def execute(_: Actions, arguments: Iterable[str]) -> Outcome:
            ended = operator.run(*arguments)  # not in a thread: it handles signals
            return Outcome(ended.exit_code, (ended.stdout + ended.stderr).strip())

        Actions.execute = execute  # type: ignore[method-assign]
        serve(StackConnection("slotkeeper"), port, writes="--write" in options, shows=False, out=Output(False))


@contextmanager
def served(content: str, *options: str) -> Iterator[str]:
    """Serve the console of such an account in a process of its own; yields an address that opens it once."""
    # NiceGUI would take the console for a test of its own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
    command = [sys.executable, "-m", "tests.command.console_account", content, *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"http://\S+token=\S+", line):
                yield found[0]
                return
        raise AssertionError("".join(lines))
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
