"""`make run`, `run-chatbot`, `run-worker`, `soak` and `bench` in small forms: every check holds on one deployed stack.

The soak is the last one, since it kills the engine.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from dev.benchmarks import __main__ as benchmark
from dev.emulator import cli, next_steps
from dev.emulator.aws import EmbeddedAws
from dev.emulator.chat_service import ANSWERS, ChatService, answer_to
from dev.emulator.chat_service import Outage as ChatOutage
from dev.emulator.downstream import Call
from dev.scenarios.faults import fault_plan, fault_player, fault_run
from dev.scenarios.faults.fault_plan import DECK, ENGINE_KILLED
from dev.scenarios.runner import checks
from dev.scenarios.runner import scenario as runner
from dev.scenarios.runner.scenario import Outcome, Run
from dev.scenarios.slots import priorities, slot_load, slot_requests
from dev.scenarios.token import token_load
from dev.scenarios.worker import worker_checks, worker_load, worker_mix, worker_records
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
    slots = slot_load.scenario(slot_load.Parameters(0, LIMIT, 0.0))
    scenarios = (slots, token_load.scenario(chat_service), worker_load.scenario(WORKER), fault_run.SCENARIO)
    parameters = {name: value for each in scenarios for name, value in each.stack.items()}
    machines = (slots.stack["MoreStateMachineArns"], benchmark.PARAMETERS["MoreStateMachineArns"])
    parameters["MoreStateMachineArns"] = ",".join(machines)
    options = {name: value for each in scenarios for name, value in each.engine.items()}
    with EmbeddedAws.start(tmp_path_factory.mktemp("runs"), **options) as started:
        started.deploy(parameters)
        yield started


def run() -> Run:
    return Run(Console(file=io.StringIO()))


def shown(outcome: Outcome, folder: Path) -> str:
    """Write the report and the pages; what the terminal shows."""
    output = io.StringIO()
    runner.write(folder, outcome, Run(Console(file=output, width=220)))
    report = json.loads((folder / runner.REPORT).read_text())
    assert report.keys() == set(re.findall(r"^\| `(\w+)` \|", str(runner.__doc__), re.MULTILINE))
    return output.getvalue()


def results(outcome: Outcome) -> dict[bool | None, dict[str, str]]:
    """The checks' findings by name, by their result."""
    found: dict[bool | None, dict[str, str]] = {True: {}, False: {}, None: {}}
    for each in checks.as_json(outcome.checks)["checks"]:
        found[each["ok"]][each["name"]] = each["found"]
    return found


def test_every_check_of_a_run_with_priorities_holds(aws: EmbeddedAws, tmp_path: Path) -> None:
    parameters = slot_load.Parameters(priorities.MIN_REQUESTS, LIMIT, 0.1, priorities=True)
    outcome = slot_load.measure(aws, parameters, run())
    figures = outcome.figures
    assert results(outcome)[False] == {}
    assert (figures["requests"], figures["ended"]) == (12, {"SUCCEEDED": 10, "FAILED": 1, "CANCELLED": 1})
    assert figures["sample: slots in use at the end"] == 0
    assert {name for name in figures if name.startswith("wait of ")} == {
        "wait of low",
        "wait of normal",
        "wait of high",
    }
    assert [each.endswith(": Cancelled, by make run") for each in figures["ended without a start"]] == [True]
    output = shown(outcome, tmp_path)
    assert all(f"{tmp_path}/{name}: " in output for name in (runner.PICTURE, runner.PAGE, runner.REPORT))
    page = (tmp_path / runner.PAGE).read_text()
    assert "10 succeeded" in (tmp_path / runner.PICTURE).read_text()
    requests, _ = slot_requests.for_the_job(parameters.requests, parameters.fail)
    ends = [each.request_id.partition("-")[2] for each in requests]  # without the time of the run
    assert [end for end in ends if f"-{end}</span>" not in page] == []


def test_every_check_of_a_run_holds_while_the_janitor_runs_the_system_alone(aws: EmbeddedAws) -> None:
    parameters = slot_load.Parameters(requests=2 * LIMIT + 1, limit=LIMIT, fail=0.0, doorbell=False, keys=2)
    outcome = slot_load.measure(aws, parameters, run())
    assert results(outcome)[False] == {}
    assert "the janitor ran the system alone" in results(outcome)[True]
    assert outcome.figures["ended"] == {"SUCCEEDED": 2 * LIMIT + 1}
    assert {"wait of customer-1", "wait of customer-2"} <= outcome.figures.keys()
    assert "never more of a key at work than its limit then in force" in results(outcome)[True]


def test_every_check_of_a_run_with_a_state_machine_holds(aws: EmbeddedAws) -> None:
    parameters = slot_load.Parameters(requests=6, limit=2, fail=0.2, target="workflow")
    outcome = slot_load.measure(aws, parameters, run())
    figures = outcome.figures
    assert results(outcome)[False] == {}
    assert figures["ended"] == {"SUCCEEDED": 5, "FAILED": 1}
    assert (figures["weather: most child executions alive"], figures["of a caller that waits"]) == ("2 (limit 2)", 3)


CHATBOT = token_load.Parameters(messages=24, senders=2, invalidations=2, auth_latency=LATENCY)
ANSWERED = "every message is answered"
ONE_EACH = "one POST /auth per invalidation"
AUTHS = "the API accepts each POST /auth"
THREE_TIMES = "no message asks the API more than three times"
STORED = "the stored token is the live one"
SHARED = "several containers share the token"


@pytest.fixture(scope="module")
def conversation(aws: EmbeddedAws, chat_service: ChatService) -> token_load.Records:
    """The records of a run."""
    return token_load.converse(aws, chat_service, CHATBOT, run())


def test_every_check_of_the_chatbots_run_holds(conversation: token_load.Records, tmp_path: Path) -> None:
    outcome = token_load.build(CHATBOT, conversation)
    figures = outcome.figures
    assert results(outcome)[False] == results(outcome)[None] == {}
    assert (figures["messages answered"], figures["containers of the bot"]) == (24, 2)
    assert figures["wait for a new token"]["count"] >= 2
    assert "1 at first, then [1, 1] for the invalidations" in shown(outcome, tmp_path)


def _delivered(records: token_load.Records, **changes: Any) -> token_load.Records:
    first, *others = records.deliveries
    return replace(records, deliveries=[replace(first, **changes), *others])


def _stored(records: token_load.Records, **changes: Any) -> token_load.Records:
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
        (SHARED, lambda of: replace(of, containers=1)),
    ],
)
def test_control_records_that_break_a_claim_of_the_chatbots_run_fail_its_check(
    conversation: token_load.Records, claim: str, broken: Callable[[token_load.Records], token_load.Records]
) -> None:
    assert claim in results(token_load.build(CHATBOT, broken(conversation)))[False]


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

WORKER = worker_checks.Parameters(requests=20, seed=6, scale=0.05, workers=2, outage=True)
BREAKER = {"failure_threshold": 5, "window_calls": 5, "recovery_seconds": 1}
SUCCEEDED = "each request that can succeed succeeds once"
POISON = "poison has one attempt, and one dead letter with its history"
LEDGER = "the ledger agrees with S3, the dead letters and the downstream"
CALLERS = "never more than 2 concurrent callers"
LEFT = "no request is left waiting"
FEW = "the downstream is hardly called while it is down"
FOUND = "the first probe after the outage succeeds"


@pytest.fixture(scope="module")
def worked(aws: EmbeddedAws) -> worker_records.Records:
    """The records of a run with an outage."""
    if own_module("worker", "sample") is None:
        pytest.skip("the shipped work is replaced")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(worker_mix.POLICY["downstream"], "breaker", BREAKER)
        return worker_load.work_off(aws, WORKER, run(), worker_load.Timing(10.0, 3.0, 9.0, 0.2))


def test_every_check_of_the_workers_run_holds(worked: worker_records.Records, tmp_path: Path) -> None:
    outcome = worker_checks.build(WORKER, worked)
    figures = outcome.figures
    assert results(outcome)[False] == {}
    # With one caller until late, the run does not show that two are used.
    assert results(outcome)[None].keys() <= {CALLERS}
    assert figures["ended"] == {"succeeded": 18, "dead-lettered": 2}
    assert [sum(figures[f"{kind}, by attempts"].values()) for kind in ("slow", "poison")] == [6, 2]
    assert figures["calls in the outage"] >= BREAKER["failure_threshold"]
    assert "first success after it" in shown(outcome, tmp_path)


def _first[Item](items: Sequence[Item], **changes: Any) -> list[Item]:
    """The items with a changed first one."""
    first: Any = items[0]
    return [replace(first, **changes), *items[1:]]


def _poison(of: worker_records.Records) -> Call:
    """A further call for a request that can never succeed."""
    key = next(each.request.key for each in of.sent if each.request.poison)
    return Call(key, 2, of.calls[-1].began, of.calls[-1].ended, "404")


def _called(of: worker_records.Records, number: int, gap: float) -> worker_records.Records:
    """With so many more failed calls, which begin `gap` seconds apart, the last at the end of the outage."""
    assert of.outage
    ends, key = of.outage.ends, of.calls[0].key
    begins = [ends - gap * i for i in range(number)]
    more = [Call(key, 0, at, at + 0.001, "503") for at in sorted(begins)]
    return replace(of, calls=sorted([*of.calls, *more], key=lambda each: each.began))


def _ended_by(of: worker_records.Records) -> list[Call]:
    """The calls that began before the end of the outage."""
    assert of.outage
    return [each for each in of.calls if each.began < of.outage.ends]


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
        (FOUND, lambda of: _called(of, 1, 0.0)),
        (FOUND, lambda of: replace(of, calls=_ended_by(of))),
    ],
)
def test_control_records_that_break_a_claim_of_the_workers_run_fail_its_check(
    worked: worker_records.Records, claim: str, broken: Callable[[worker_records.Records], worker_records.Records]
) -> None:
    assert claim in results(worker_checks.build(WORKER, broken(worked)))[False]


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


# ---------------------------------------------------------------------------------------------------- bench and soak


def test_the_benchmark_measures_every_design(aws: EmbeddedAws) -> None:
    measured = benchmark.compared(aws, benchmark.SMALL, run())
    of = {title: rounds[0] for title, rounds in measured.items()}
    assert len(of) == 4
    # Each of six workflows takes and returns a slot, and four are refused at least once. The sample reads then.
    assert of["naive counter"]["DynamoDB calls"] == of["naive counter"]["write units"] >= 16 / 6
    assert of["AWS's sample"]["DynamoDB calls"] >= 20 / 6
    assert of["lock client"]["write units"] >= 2
    assert of["Slotkeeper"]["write units"] > of["Slotkeeper"]["DynamoDB calls"] > 7


def test_every_check_of_a_soak_holds_after_faults_and_a_killed_engine(
    aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.client("sqs").purge_queue(QueueUrl=aws.outputs["RequestDeadLetterQueueUrl"])  # of the runs before
    monkeypatch.setattr(fault_plan, "DECK", dict.fromkeys(DECK, 1))
    monkeypatch.setattr(fault_plan, "FAULT_EVERY", 0.25)
    monkeypatch.setattr(fault_plan, "SHARE_LONG", 0.0)
    monkeypatch.setattr(fault_plan, "SHARE_HANG", 0.0)
    monkeypatch.setattr(fault_player, "UNDONE_AFTER", (1.0, 2.0))
    monkeypatch.setattr(fault_run, "CALM_EACH", 1)
    outcome = fault_run.measure(aws, fault_run.Parameters(0.1, 3, 2), run())
    assert results(outcome)[False] == {}
    assert outcome.figures["faults by kind"].keys() >= {ENGINE_KILLED, "limit changed", "bad message"}
    assert "every kind of fault has acted" in shown(outcome, tmp_path)


def command(aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """`python -m dev.emulator` with this engine."""
    monkeypatch.setattr(cli, "STATE_DIR", aws.state_dir)
    return CliRunner().invoke(cli.main, list(arguments))
