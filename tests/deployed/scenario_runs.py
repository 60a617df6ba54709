"""`make run`, `run-chatbot`, `run-worker` and `soak` in small forms: every check holds on one deployed stack.

The soak is the last one, since it kills the engine.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from dev.emulator import cli, next_steps
from dev.emulator.aws import EmbeddedAws
from dev.emulator.chat_service import ANSWERS, ChatService, answer_to
from dev.emulator.chat_service import Outage as ChatOutage
from dev.emulator.downstream import Call
from dev.scenarios.runner import scenario as frame
from dev.scenarios.runner.scenario import Outcome, Run, Scenario
from dev.scenarios.slots import machine_run, priority_run, slot_report, slot_requests, slot_scenario
from dev.scenarios.soak import fault_player, soak_plan, soak_report, soak_scenario, soak_stack
from dev.scenarios.soak.soak_plan import DECK, ENGINE_KILLED
from dev.scenarios.token import token_records, token_report, token_scenario
from dev.scenarios.worker import worker_mix, worker_records, worker_report, worker_scenario
from dev.tools.function_folders import own_module

LATENCY = 0.2  # seconds of the chat API
MISSING = '{"request_id": "b", "payload": {"input_key": "work/input/nothing", "split_by": "weather"}}'
LIMIT = 3


@pytest.fixture(scope="module")
def chat_service() -> Iterator[ChatService]:
    with ChatService(auth_latency=LATENCY, answer_latency=0.05) as service:
        yield service


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory, chat_service: ChatService) -> Iterator[EmbeddedAws]:
    """An engine and a stack for all runs."""
    slots = slot_report.Parameters(0, LIMIT, 0.0)
    parameters = slot_scenario.stack(slots) | token_scenario.stack(chat_service)
    parameters |= worker_scenario.stack(WORKER) | soak_stack.PARAMETERS
    options: dict[str, Any] = {"faults": True, "lasting": True, "downstream": True, "environment": soak_stack.ENGINE}
    with EmbeddedAws.start(tmp_path_factory.mktemp("runs"), **options) as started:
        started.deploy(parameters)
        yield started


def run() -> Run:
    return Run(Console(file=io.StringIO()))


def shown(scenario: Scenario, outcome: Outcome, folder: Path) -> str:
    """Write the report, which has the documented keys, and the pages; what the terminal shows."""
    output = io.StringIO()
    frame.write(replace(scenario, folder=folder), outcome, Console(file=output, width=220))
    return output.getvalue()


def undocumented(outcome: Outcome, module: Any) -> set[str]:
    return set(outcome.report) - set(re.findall(r"`(\w+)`", f"{frame.__doc__}{module.__doc__}"))


def results(report: Mapping[str, Any]) -> dict[bool | None, dict[str, str]]:
    """The checks' findings by name, by their result."""
    found: dict[bool | None, dict[str, str]] = {True: {}, False: {}, None: {}}
    for each in report["checks"]:
        found[each["ok"]][each["name"]] = each["found"]
    return found


def test_every_check_of_a_run_with_priorities_holds(
    aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority_run, "FULL_WITHIN", 1.0)
    parameters = slot_report.Parameters(priority_run.MIN_REQUESTS, LIMIT, 0.1, priorities=True)
    outcome = priority_run.measure(aws, parameters, run())
    report = outcome.report
    assert results(report)[False] == {}
    assert (report["requests"], report["succeeded"], report["failed"]) == (12, 10, 1)
    assert report["slots_in_use_at_end"] == 0
    assert report["wait"].keys() == {"low", "normal", "high"}
    assert [each["code"] for each in report["without_start"]] == ["Cancelled"]
    output = shown(slot_scenario.SCENARIO, outcome, tmp_path)
    assert all(f"{tmp_path}/{name}: " in output for name in (frame.PICTURE, frame.PAGE, frame.REPORT))
    page = (tmp_path / frame.PAGE).read_text()
    assert "10 succeeded" in (tmp_path / frame.PICTURE).read_text()
    requests, _ = slot_requests.for_the_job(parameters.requests, parameters.fail)
    ends = [each.request_id.partition("-")[2] for each in requests]  # without the time of the run
    assert [end for end in ends if f"-{end}</span>" not in page] == []
    assert undocumented(outcome, slot_report) == set()


def test_every_check_of_a_run_holds_while_the_janitor_runs_the_system_alone(aws: EmbeddedAws) -> None:
    parameters = slot_report.Parameters(requests=2 * LIMIT + 1, limit=LIMIT, fail=0.0, doorbell=False)
    report = slot_scenario.measure(aws, parameters, run()).report
    assert results(report)[False] == {}
    assert "the janitor ran the system alone" in results(report)[True]
    assert report["succeeded"] == 2 * LIMIT + 1


def test_every_check_of_a_run_with_a_state_machine_holds(aws: EmbeddedAws) -> None:
    parameters = slot_report.Parameters(requests=6, limit=2, fail=0.2, target="workflow")
    report = machine_run.measure(aws, parameters, run()).report
    assert results(report)[False] == {}
    assert [report[name] for name in ("requests", "succeeded", "failed")] == [6, 5, 1]
    assert report["most_at_work"] == {"weight": 2, "limit": 2}
    assert list(report["more"].values()) == [3, 3]


CHATBOT = token_report.Parameters(messages=24, senders=2, invalidations=2, auth_latency=LATENCY)
ANSWERED = "every message is answered"
ONE_EACH = "one POST /auth per invalidation"
AUTHS = "the API accepts each POST /auth"
THREE_TIMES = "no message asks the API more than three times"
STORED = "the stored token is the live one"
SHARED = "several containers share the token"


@pytest.fixture(scope="module")
def conversation(aws: EmbeddedAws, chat_service: ChatService) -> token_records.Records:
    """The records of a run."""
    return token_scenario.converse(aws, chat_service, CHATBOT, run())


def test_every_check_of_the_chatbots_run_holds(conversation: token_records.Records, tmp_path: Path) -> None:
    outcome = token_report.build(CHATBOT, conversation, run())
    report = outcome.report
    assert results(report)[False] == results(report)[None] == {}
    assert (report["answered"], report["containers"]) == (24, 2)
    assert report["auths"] == {"cold": 1, "per_invalidation": [1, 1], "total": 3}
    assert report["token_waits"]["count"] >= 2
    assert "1 at first, then [1, 1] for the invalidations" in shown(token_scenario.SCENARIO, outcome, tmp_path)
    assert undocumented(outcome, token_report) == set()


def _delivered(records: token_records.Records, **changes: Any) -> token_records.Records:
    first, *others = records.deliveries
    return replace(records, deliveries=[replace(first, **changes), *others])


def _stored(records: token_records.Records, **changes: Any) -> token_records.Records:
    return replace(records, stored=replace(records.stored, **changes))


@pytest.mark.parametrize(
    ("claim", "broken"),
    [
        (ANSWERED, lambda of: _delivered(of, answer=None)),
        (ANSWERED, lambda of: _delivered(of, answer="You wrote one word")),
        (ANSWERED, lambda of: replace(of, deliveries=of.deliveries[1:])),
        (ONE_EACH, lambda of: replace(of, log=[*of.log, of.auths[-1]])),
        (ONE_EACH, lambda of: replace(of, log=[of.auths[0], *of.log])),
        (ONE_EACH, lambda of: replace(of, tokens=[replace(of.tokens[0], ended_by=None), *of.tokens[1:]])),
        (AUTHS, lambda of: replace(of, log=[*of.log, replace(of.auths[-1], status=503)])),
        (THREE_TIMES, lambda of: replace(of, log=[*of.log, *[each for each in of.log if each.text][:1] * 3])),
        (STORED, lambda of: _stored(of, token=None, live=False)),
        (STORED, lambda of: _stored(of, generation=4)),
        (STORED, lambda of: _stored(of, locked=True)),
        (SHARED, lambda of: replace(of, metrics={"ColdStart": 1})),
        (SHARED, lambda of: replace(of, metrics={})),
    ],
)
def test_control_records_that_break_a_claim_of_the_chatbots_run_fail_its_check(
    conversation: token_records.Records, claim: str, broken: Callable[[token_records.Records], token_records.Records]
) -> None:
    assert claim in results(token_report.build(CHATBOT, broken(conversation), run()).report)[False]


def test_make_say_shows_the_answer_or_its_refusal(
    aws: EmbeddedAws, chat_service: ChatService, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = command(aws, monkeypatch, "say", "Good morning")
    chat_service.strike(ANSWERS, ChatOutage(status=503))
    refused = command(aws, monkeypatch, "say", "Good night")
    assert (answered.exit_code, answered.output.strip()) == (0, answer_to("Good morning"))
    assert refused.exit_code == 1
    assert refused.output.startswith("local: 502 ChatApiFailed: ")


# ------------------------------------------------------------------------------------------------------------- worker

WORKER = worker_report.Parameters(requests=20, seed=6, scale=0.05, workers=2, outage=True)
BREAKER = {"failure_threshold": 5, "window_calls": 5, "recovery_seconds": 1}
SUCCEEDED = "each request that can succeed succeeds once"
POISON = "poison has one attempt, and one dead letter with its history"
LEDGER = "the ledger agrees with S3, the dead letters and the downstream"
CALLERS = "never more than 2 concurrent callers"
LEFT = "no request is left waiting"
FEW = "the downstream is hardly called while it is down"
PROBES = "one probe at a time, each after its wait"
ATTEMPTS = "the outage uses up at most one attempt in all"
FOUND = "the first probe after the outage succeeds"


@pytest.fixture(scope="module")
def worked(aws: EmbeddedAws) -> worker_records.Records:
    """The records of a run with an outage."""
    if own_module("worker", "sample") is None:
        pytest.skip("the shipped work is replaced")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(worker_mix.POLICY["downstream"], "breaker", BREAKER)
        return worker_scenario.work_off(aws, WORKER, run(), worker_scenario.Timing(10.0, 3.0, 9.0, 0.2))


def test_every_check_of_the_workers_run_holds(worked: worker_records.Records, tmp_path: Path) -> None:
    outcome = worker_report.build(WORKER, worked, run())
    report = outcome.report
    assert results(report)[False] == {}
    # The breaker can open or close too late to show more than one probe, and with one caller until late.
    assert results(report)[None].keys() <= {CALLERS, PROBES}
    assert (report["succeeded"], report["dead_lettered"], report["nowhere"]) == (18, 2, 0)
    assert report["most_callers"] <= 2
    assert [sum(report["attempts"][kind].values()) for kind in ("slow", "poison")] == [6, 2]
    assert report["outage"]["calls"] >= BREAKER["failure_threshold"]
    assert "first success after" in shown(worker_scenario.SCENARIO, outcome, tmp_path)
    assert undocumented(outcome, worker_report) == set()


def _first[Item](items: Sequence[Item], **changes: Any) -> list[Item]:
    """The items with a changed first one."""
    first: Any = items[0]
    return [replace(first, **changes), *items[1:]]


def _poison(of: worker_records.Records) -> Call:
    """A further call for a request that can never succeed."""
    key = next(each.request.key for each in of.sent if each.request.poison)
    return Call(key, 2, of.calls[-1].began, of.calls[-1].ended, "404")


def _out(of: worker_records.Records, **changes: Any) -> worker_records.Records:
    assert of.outage
    return replace(of, outage=replace(of.outage, **changes))


def _called(of: worker_records.Records, number: int, gap: float, answer: str = "503") -> worker_records.Records:
    """With so many more calls, which begin at the end of the outage, or `gap` seconds apart before it."""
    assert of.outage
    ends, key = of.outage.outage.ends, of.calls[0].key
    begins = [ends - gap * i for i in range(number)]
    more = [Call(key, 0, at, at + 0.001, answer) for at in sorted(begins)]
    return _out(of, calls=sorted([*of.outage.calls, *more], key=lambda each: each.began))


def _counted(of: worker_records.Records) -> worker_records.Records:
    assert of.outage
    return _out(of, retried=[replace(each, counted=True) for each in of.outage.retried])


@pytest.mark.parametrize(
    ("claim", "broken"),
    [
        (SUCCEEDED, lambda of: replace(of, manifests=of.manifests[1:])),
        (SUCCEEDED, lambda of: replace(of, manifests=[*of.manifests, of.manifests[0]])),
        (POISON, lambda of: replace(of, dead=[*of.dead, of.dead[0]])),
        (POISON, lambda of: replace(of, dead=_first(of.dead, history=[]))),
        (POISON, lambda of: replace(of, calls=[*of.calls, _poison(of), _poison(of)])),
        (LEDGER, lambda of: replace(of, rows=of.rows[1:])),
        (LEDGER, lambda of: replace(of, rows=[*of.rows, replace(of.rows[0], request_id="other")])),
        (LEDGER, lambda of: replace(of, dead=_first(of.dead, first_attempt_at=None))),
        (LEDGER, lambda of: replace(of, manifests=_first(of.manifests, attempt=9))),
        (CALLERS, lambda of: replace(of, calls=[replace(each, ended=None) for each in of.calls])),
        (LEFT, lambda of: replace(of, left={"messages": 1})),
        (LEFT, lambda of: replace(of, rows=_first(of.rows, status="WAITING"))),
        (FEW, lambda of: _called(of, 60, 0.1)),
        (PROBES, lambda of: _called(of, 3, -0.01)),
        (ATTEMPTS, _counted),
        (FOUND, lambda of: _called(of, 1, 0.0)),
        (FOUND, lambda of: _out(of, calls=of.outage.during if of.outage else [])),
    ],
)
def test_control_records_that_break_a_claim_of_the_workers_run_fail_its_check(
    worked: worker_records.Records, claim: str, broken: Callable[[worker_records.Records], worker_records.Records]
) -> None:
    assert claim in results(worker_report.build(WORKER, broken(worked), run()).report)[False]


@pytest.mark.skipif(own_module("worker", "sample") is None, reason="the shipped work is replaced")
def test_make_work_shows_the_outcome_of_its_message(aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    sample: Any = own_module("worker", "sample")
    next_steps.upload_sample(aws)
    bodies = [sample.body("a"), sample.body("a"), MISSING, "no JSON"]
    done, repeated, missing, invalid = (command(aws, monkeypatch, "work", "--", body) for body in bodies)
    assert done.exit_code == repeated.exit_code == 0
    assert "local: a has succeeded after 1 attempt\n" in done.output
    assert re.search(r"local:   rain: work/parts/a/1/\S+, records: 18\n", done.output)
    assert "local: dropped: " in repeated.output
    assert done.output.splitlines()[-5:] == repeated.output.splitlines()[-5:]
    assert missing.exit_code == invalid.exit_code == 1
    assert "local: b is dead-lettered after 1 attempt: Poison\n" in missing.output
    assert missing.output.endswith(": slotkeeper --local dlq redrive work --id b\n")
    assert "is dead-lettered without an attempt: InvalidMessage\n" in invalid.output


# --------------------------------------------------------------------------------------------------------------- soak


def test_every_check_of_a_soak_holds_after_faults_and_a_killed_engine(
    aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.client("sqs").purge_queue(QueueUrl=aws.outputs["RequestDeadLetterQueueUrl"])  # of the runs before
    monkeypatch.setattr(soak_plan, "DECK", dict.fromkeys(DECK, 1))
    monkeypatch.setattr(soak_plan, "FAULT_EVERY", 0.25)
    monkeypatch.setattr(soak_plan, "SHARE_LONG", 0.0)
    monkeypatch.setattr(soak_plan, "SHARE_HANG", 0.0)
    monkeypatch.setattr(fault_player, "UNDONE_AFTER", (1.0, 2.0))
    monkeypatch.setattr(soak_scenario, "CALM_EACH", 1)
    outcome = soak_scenario.measure(aws, soak_report.Parameters(0.1, 3, 2), run())
    report = outcome.report
    assert results(report)[False] == {}
    assert report["faults"].keys() >= {ENGINE_KILLED, "limit changed", "bad message"}
    assert "Faults that acted" in shown(soak_scenario.SCENARIO, outcome, tmp_path)
    assert undocumented(outcome, soak_report) == set()


def command(aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """`python -m dev.emulator` with this engine."""
    monkeypatch.setattr(cli, "STATE_DIR", aws.state_dir)
    return CliRunner().invoke(cli.main, list(arguments))
