"""`make invoke` calls the functions of `make local-up` with each sample event, which has its outcome."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result

from dev.emulator import cli
from dev.emulator.aws import EmbeddedAws
from dev.emulator.environment import ROOT
from dev.tools import invoke
from dev.tools.function_folders import own_module
from slotkeeper.slots.request import execution_name
from tests.deployed.deployed_stack import DeployedStack
from tests.waiting import wait_until

UP = """
import sys
from pathlib import Path
from dev.emulator import cli
cli.STATE_DIR = Path(sys.argv.pop(1))
sys.argv.insert(1, "up")
import dev.emulator.__main__
"""
HANDLED = '"batchItemFailures": []'
(REUSED,) = json.loads((ROOT / "events" / "starter" / "reused_id.json").read_text())["Records"]


class Sample(NamedTuple):
    """An event and its outcome.

    Args:
        metrics: their sums in the log.
        shows: texts in the output.
        request, state: how a request's row ends: process, id, attempt and the rest of its name.
    """

    event: str
    metrics: dict[str, float] = {}  # noqa: RUF012
    shows: tuple[str, ...] = (HANDLED,)
    request: tuple[str, str, int, str] = ("", "", 1, "")
    state: str = ""


def _request(event: str, metrics: dict[str, float], process: str, name: str, state: str, *more: Any) -> Sample:
    attempt, suffix = [*more, *(1, "")[len(more) :]]
    return Sample(event, metrics, request=(process, name, attempt, suffix), state=state)


def _responds(event: str, *shows: str) -> Sample:
    return Sample(event, shows=shows)


# In this order: an event may need the outcome of an earlier one.
SAMPLES = [
    _request("starter/happy", {"RequestsAdmitted": 1}, "sample", "2012-01", "SUCCEEDED"),
    Sample("starter/repeated", {"RequestsRepeated": 1, "RequestsAdmitted": 0}),
    _request("starter/reused_id", {}, "sample", "2012-01", "REJECTED RequestIdReused", 1, f"#{REUSED['messageId']}"),
    _request("starter/second_attempt", {"RequestsAdmitted": 1}, "sample", "2012-01", "SUCCEEDED", 2),
    _request("starter/too_late", {"RequestsAdmitted": 0}, "sample", "2012-05", "TOO_LATE TooLate"),
    _request("starter/sent_again", {"RequestsAdmitted": 1}, "sample", "2012-05", "SUCCEEDED", 2),
    _request("starter/urgent", {"RequestsAdmitted": 1}, "sample", "2012-04", "SUCCEEDED"),
    _request("starter/full", {"RequestsAdmitted": 0}, "full", "2012-01", "QUEUED"),
    _request("starter/skipped", {"RequestsAdmitted": 0}, "full", "2012-02", "SKIPPED Skipped"),
    _request("starter/unknown_process", {}, "unregistered", "2012-01", "REJECTED UnknownProcess"),
    Sample("starter/batch", {"RequestsDeadLettered": 1, "RequestsRepeated": 2}),
    Sample("starter/not_json", {"RequestsDeadLettered": 1}),
    Sample("starter/doorbell", {"StarterErrors": 0}),
    Sample("starter/not_a_doorbell", {"StarterErrors": 1}),
    Sample("janitor/scheduled_run", {"JanitorRuns": 1}, ('"StartsOverdue": 0', '"RequestsUnpublished": 0')),
    Sample("ending/succeeded", {"EndingsHandled": 1, "RequestsSettled": 0}),
    Sample("ending/refused", {"EndingsHandled": 1, "EventsNotSent": 0}),
    _responds("process_registrar/create", '"Status": "SUCCESS"', '"Created": "true"'),
    _responds("process_registrar/update_limit", '"Status": "SUCCESS"', '"Created": "false"'),
    _responds("process_registrar/update_job", '"Status": "SUCCESS"', "Changed the target of the process"),
    _responds("process_registrar/delete", '"Status": "SUCCESS"'),
    _responds("process_registrar/missing_job", '"Status": "FAILED"', "no-such-job"),
    _responds("process_registrar/permitted_jobs", '"Status": "SUCCESS"'),
    Sample("token_refresher/schedule", {"TokenRefresherRuns": 1}, ('"Generation": ',)),
    Sample("token_refresher/ask", {"TokenRefreshes": 0}, ('"Generation": ',)),
    _responds("token_refresher/create", '"Status": "SUCCESS"', '"Generation": '),
    _responds("token_refresher/delete", '"Status": "SUCCESS"', '"Data": {}'),
    _responds("chatbot/happy", '"statusCode": 200', "You said 5 words"),
    _responds("chatbot/wrong_signature", '"statusCode": 401', "WrongSignature"),
    _responds("chatbot/stale_timestamp", '"statusCode": 401', "StaleTimestamp"),
    _responds("chatbot/not_json", '"statusCode": 400', "MalformedMessage"),
    _responds("chatbot/wrong_method", '"statusCode": 405', "MethodNotAllowed"),
    Sample("worker/redelivery"),  # the first delivery
    Sample("worker/redelivery", {"WorkRepeated": 1}),
    Sample("worker/reused_id", {"WorkDeadLettered": 1}),
    Sample("worker/not_json", {"WorkDeadLettered": 1}),
    Sample("worker/hop_not_due", {"WorkHops": 2}),
    Sample("retry_report/scheduled", {"RetryReports": 1}, ('"failures": ',)),
]


def _own_samples() -> list[Sample]:
    """The events of the worker's work, which you may replace. Nothing more is expected of yours."""
    module = own_module("worker", "tests.expected_events")
    expected = module.EXPECTED if module else {}
    own = (ROOT / "functions" / "worker" / "events").glob("*.json")
    return [Sample(name, expected.get(name, {})) for name in sorted(f"worker/{path.stem}" for path in own)]


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    """The stack of `make local-up` with the retry report. The first event of the token refresher adds that."""
    folder = tmp_path_factory.mktemp("local")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(invoke, "LOCAL_UP", [sys.executable, "-c", UP, str(folder)])
        patch.setattr(cli, "STATE_DIR", folder)
        subprocess.run([*invoke.LOCAL_UP, f"--parameters={invoke.OPTIONAL['retry_report']}"], cwd=ROOT, check=True)
        started = EmbeddedAws.attach(folder)
        yield started
        started.stop()


def run(*arguments: str) -> Result:
    return CliRunner(mix_stderr=False).invoke(invoke.main, arguments)


def _has_its_state(stack: DeployedStack, sample: Sample) -> bool:
    process, request, attempt, suffix = sample.request
    row = stack.row(process, execution_name(process, request, attempt) + suffix)
    return f"{row.state} {row.code}".strip() == sample.state


def test_each_sample_event_has_its_outcome(aws: EmbeddedAws, subtests: pytest.Subtests) -> None:
    stack = DeployedStack(aws)
    for sample in [*SAMPLES, *_own_samples()]:
        with subtests.test(sample.event):
            ended = run(*sample.event.split("/"))
            output = ended.stdout + ended.stderr
            assert ended.exit_code == 0, output
            assert all(text in output for text in sample.shows), output
            counted: Counter[str] = Counter()
            for line in (json.loads(line) for line in ended.stderr.splitlines() if line.startswith('{"_aws"')):
                counted.update({name: sum(value) for name, value in line.items() if isinstance(value, list)})
            assert sample.metrics.items() <= {name: counted[name] for name in sample.metrics}.items(), output
            if sample.state:
                wait_until(partial(_has_its_state, stack, sample), f"{sample.request} to be {sample.state}")
    orders = stack.item("orders")
    assert (orders.slot_limit, orders.target) == (3, invoke.JOBS[1])


def test_a_function_that_raises_is_the_exit_code(aws: EmbeddedAws, tmp_path: Path) -> None:
    (tmp_path / "event.json").write_text("{}")
    ended = run("starter", str(tmp_path / "event.json"))
    assert (ended.exit_code, "errorType" in json.loads(ended.stdout)) == (1, True)
    assert "KeyError: 'Records'" in ended.stdout + ended.stderr


def test_a_changed_source_is_deployed_before_the_call(aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invoke, "digest_of_sources", lambda: "changed")
    monkeypatch.setattr(invoke, "LOCAL_UP", [sys.executable, "-c", "raise SystemExit(1)"])
    ended = run("starter", "happy")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "make local-up failed. No function was called." in ended.stderr


def test_a_function_that_does_not_start_shows_the_reason_with_its_type(aws: EmbeddedAws) -> None:
    functions = aws.client("lambda")
    (name,) = (
        each["FunctionName"]
        for each in functions.list_functions()["Functions"]
        if "RetryReport" in each["FunctionName"]
    )
    functions.update_function_configuration(FunctionName=name, Environment={"Variables": {}})
    ended = run("retry_report", "scheduled")
    assert ended.exit_code == 1
    assert "MissingSetting: the function's environment lacks " in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["startr", "happy"], "'startr' is not one of '', 'chatbot', 'ending', "),
        (["starter", "hapy"], "starter has no event 'hapy', nor is it a file. It has batch, doorbell, full, happy, "),
        (["starter", str(ROOT / "README.md")], "README.md is not JSON"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(arguments: list[str], message: str) -> None:
    ended = run(*arguments)
    assert ended.exit_code == 2
    assert message in ended.stderr


def test_every_sample_event_has_an_outcome_and_is_described() -> None:
    described = re.findall(r"^\| `(\w+/\w+)` \|", (ROOT / "events" / "README.md").read_text(), re.MULTILINE)
    assert described == list(dict.fromkeys(sample.event for sample in SAMPLES))
    assert sorted(described) == sorted(f"{path.parent.name}/{path.stem}" for path in (ROOT / "events").glob("*/*.json"))
