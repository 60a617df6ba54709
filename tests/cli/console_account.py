"""`python -m tests.cli.console_account CONTENT`: serves the console of an account of moto, with its real clock.

CONTENT is `empty`, `healthy` or `troubled`. It prints an address that opens it once; with `--write` its buttons change
the account. The screenshots in docs/images are of `troubled`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace

import moto.core  # noqa: F401 - before operator_account.py creates a session

from slotkeeper.retry.downstream.downstreams import DownstreamTable
from slotkeeper.retry.downstream.health import Breaker, Change, Health, State
from slotkeeper.slots.rate import Rate
from slotkeeper_cli import dead_letters, stack_connection
from slotkeeper_cli.output import Output
from slotkeeper_cli.web.actions import Actions, Outcome
from tests.cli import operator_account
from tests.cli.account_contents import add_malformed, fail, job_run, send_dead_letter, succeed
from tests.cli.operator_account import TEMPLATE, Operator, client, made_stack, stack_of
from tests.support.prepared_account import prepared_account

MARKUP = "<img src=x onerror=document.title='run'>"  # a request's id
LONG = "a-request-id-of-eighty-characters-" + "0123456789" * 4 + "-the-end"
_ALARMS = {"JanitorSilentAlarm": "OK", "WorkDeadLetterAlarm": "ALARM", "StarterErrorsAlarm": "INSUFFICIENT_DATA"}


def _ago(minutes: float) -> None:
    """What follows happens this many minutes ago."""
    operator_account.NOW = time.time() - 60 * minutes  # type: ignore[misc]


def fill_healthy(operator: Operator) -> None:
    """A stack that works: a busy process with a queue, and one that is idle."""
    operator.processes.create("nightly-load", 5, "sample-job")
    for number in range(24):
        _ago(58 - 2 * number)
        succeed(operator, f"day-{number:02}", "nightly-load")
    for number in range(5):
        _ago(9 - number)
        operator.run_glue(operator.hold(f"running-{number}", "nightly-load"))
    for number in range(12):
        _ago(6 - number / 3)
        operator.wait(f"waiting-{number:02}", "nightly-load", "high" if number == 7 else "normal")


def fill_troubled(operator: Operator) -> None:
    """A healthy stack, and eleven troubles."""
    fill_healthy(operator)
    create = operator.processes.create
    _ago(40)
    create("killed-execution", 2, "sample-job")  # 1: an execution that was stopped, whose slot nothing has released
    operator.stop(operator.hold("killed", "killed-execution"))
    add_malformed(operator)  # 2
    create("removed", 1, "sample-job")  # 3: a process that was removed with 20 queued requests
    for number in range(20):
        _ago(30 - number)
        operator.wait(f"orphan-{number:02}", "removed")
    _remove(operator, "removed")
    operator.event_source = "Disabled"  # 4
    operator.send("never-accepted", "nightly-load")  # 5: what a purged queue leaves is nothing, so this one is left
    for number in range(50):  # 6
        send_dead_letter(operator, f"not JSON {number}", f"m-{number}", number)
    create("no-slots", 1, "sample-job")  # 7
    operator.processes.set_limit("no-slots", 0)
    for number in range(8):
        _ago(25 - number)
        operator.wait(f"stopped-{number}", "no-slots")
    create("always-fails", 3, "sample-job")  # 8
    for number in range(31):
        _ago(55 - number)
        fail(
            operator,
            f"order-{number}",
            job_run(f"KeyError: 'customer_{number:05}' is not in the table"),
            "always-fails",
        )
    fail(operator, LONG, "the bucket does not exist", "always-fails")
    create("rated", 10, "sample-job", rate=Rate(2, 3600))  # 9
    for number in range(4):
        _ago(12 - number)
        operator.wait(f"rated-{number}", "rated")
    create("late", 1, "sample-job")  # 10
    for number in range(3):
        _ago(20)
        name = operator.wait(f"late-{number}", "late", start_before=_iso(time.time() + 600))
        operator.leave(name, "TOO_LATE", "StartBeforePassed", "its start_before has passed", "late")
    _open_breaker(operator)  # 11
    _ago(3)
    operator.hold(MARKUP, "killed-execution")
    operator.wait(LONG, "killed-execution", weight=2)
    operator.processes.create("paused-by-night", 4, "sample-job")
    operator.processes.pause("paused-by-night")
    operator.wait("during-pause", "paused-by-night")
    for number in range(30):
        create(f"idle-{number:02}", 2, "sample-job")


def _open_breaker(operator: Operator) -> None:
    since = time.time() - 900
    change = Change(since, State.OPEN, "18 of 18 calls failed: HTTP 503")
    breaker = replace(Breaker(), state=State.OPEN, probe_at=time.time() + 30, changes=(change,))
    table = DownstreamTable(operator.dynamodb, operator.outputs["DownstreamTableName"])
    table.change("mail", lambda _: (replace(Health(), breaker=breaker), None))


def _remove(operator: Operator, process: str) -> None:
    operator.processes.pause(process)
    assert operator.processes.remove(process)


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


CONTENTS = {"empty": lambda operator: _remove(operator, "sample"), "healthy": fill_healthy, "troubled": fill_troubled}


@contextmanager
def _account(content: str) -> Iterator[Operator]:
    session = SimpleNamespace(client=lambda service, **_: client(service))
    stack_connection.boto3 = SimpleNamespace(Session=lambda **_: session)  # type: ignore[assignment]
    dead_letters.LONG_POLL_SECONDS = 0
    resources = [(name, name, "AWS::CloudWatch::Alarm") for name in _ALARMS]
    with prepared_account(made_stack) as outputs, ExitStack() as stubs:
        outputs["FailureTopicArn"] = client("sns").create_topic(Name="alarms")["TopicArn"]
        operator = Operator(outputs)
        stubs.enter_context(operator.answers())
        template = {"GetTemplate": lambda _: {"TemplateBody": json.dumps(TEMPLATE)}}
        stubs.enter_context(stack_of(*resources, **template))
        cloudwatch = client("cloudwatch")
        for name, state in _ALARMS.items() if content != "empty" else ():
            about = f"{name} is about something. First step: look at the dead letters. Runbook: docs/runbooks.md#{name}"
            cloudwatch.put_metric_alarm(
                AlarmName=name,
                AlarmDescription=about,
                EvaluationPeriods=1,
                MetricName="M",
                Namespace="N",
                Period=60,
                Statistic="Sum",
                Threshold=1.0,
                ComparisonOperator="GreaterThanThreshold",
            )
            cloudwatch.set_alarm_state(
                AlarmName=name,
                StateValue=state if content == "troubled" else "OK",
                StateReason="50 messages are above 0",
            )
        CONTENTS[content](operator)
        yield operator


def main(content: str, *options: str) -> None:
    """Serve the console until SIGTERM."""
    import signal
    import socket

    from slotkeeper_cli.stack_connection import StackConnection
    from slotkeeper_cli.web.server import HOST, serve

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        os.environ.pop(name, None)
    os.environ |= {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "COLUMNS": "200",
    }
    with _account(content) as operator, socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
        free.close()

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
    command = [sys.executable, "-m", "tests.cli.console_account", content, *options]
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
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
