"""`slotkeeper status`: its answer of many and of one process, its calls, and stacks without an optional flow."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.retry.delivery import TooLarge
from slotkeeper.retry.ledger import MalformedRow
from slotkeeper.retry.message import InvalidMessage
from slotkeeper.slots.rows import Listed
from slotkeeper_cli import status as answer
from slotkeeper_cli.account import Account
from slotkeeper_cli.commands import status
from slotkeeper_cli.doctor import slot_checks
from slotkeeper_cli.process_queue import ProcessQueue, Queues
from slotkeeper_cli.stack_connection import FLOWS, StackConnection
from tests.command.account_contents import add_malformed, edit
from tests.command.operator_account import NOW, Operator, StubbedCalls
from tests.command.situations import set_clock
from tests.template.parsing import parsed_template

LONG = "nightly-" + "x" * 72  # the id of a request


@pytest.fixture
def busy(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """Three processes with holders or queued requests, fourteen idle ones, and one that is malformed."""
    operator.run_glue(operator.hold("a"))
    operator.wait(LONG)
    operator.wait("late", start_before="2099-11-28T08:00:00Z")
    operator.processes.create("weighted", 6, "sample-job", default_weight=2)
    operator.hold(LONG, "weighted", weight=5)
    operator.wait("heavy", "weighted", weight=7)
    operator.processes.create("licence", 100)
    operator.lease("lease-1", int(NOW) + 30, "licence")
    for number in range(14):
        operator.processes.create(f"idle-{number:02}", 1, "sample-job")
    operator.processes.pause("idle-00")
    operator.processes.set_limit("idle-01", 0)
    operator.send("sent")
    add_malformed(operator)
    set_clock(monkeypatch, NOW + 60)
    return operator


ATTENTION = (
    {
        "severity": "bad",
        "process": "odd",
        "what": "the item of process odd is malformed",
        "since": "2026-09-21T14:13:20Z",
        "why": "slot_limit must be of DynamoDB type N. No request starts.",
        "command": "slotkeeper process repair odd",
    },
    {"severity": "warn", "process": None, "what": "1 dead-letter message", "since": None, "why": "", "command": None},
)
OVERVIEW = """\
slotkeeper in us-east-1, 2026-09-21 14:14:20 UTC
bad   the item of process odd is malformed (for 1 min): slot_limit must be of
  DynamoDB type N. No request starts.
      -> slotkeeper process repair odd
warn  1 dead-letter message
weighted                        [########..]  5 of 6
  1 queued, the oldest for 59 s
  blocked: heavy (weight 7), waiting for 59 s: blocked: weight 7 above the
    limit 6
sample                          [##########]  1 of 1
  2 queued, the oldest for 59 s
  next: nightly-xxxxx...xxxxxxxxxxxxxx, waiting for 59 s: 1 of 1 slot in use
licence                         [#.........]  1 of 100
14 idle: idle-00 (paused), idle-01 (limit 0), idle-02, idle-03 and 10 more
Messages: RequestQueue 1
"""
ONE = """\
slotkeeper in us-east-1, 2026-09-21 14:14:20 UTC
warn  1 dead-letter message
weighted  [########..]  5 of 6 in use by 1 holder, default weight 2
  Glue job sample-job
  1 queued, the oldest for 59 s
  blocked: heavy (weight 7), waiting for 59 s: blocked: weight 7 above the
    limit 6
  https://us-east-1.console.aws.amazon.com/states/home?region=us-east-1#/v2/executions/details/{arn}
holder          state    for    weight  status   work            execution
night...xxxxxx  RUNNING  1 min       5  RUNNING  no Gl... found  weight...{digest}
Messages: RequestQueue 1
"""


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns, and two findings."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(status, "attention", lambda _: {"items": ATTENTION, "not_read": []})


@pytest.mark.usefixtures("narrow")
def test_all_processes_on_a_narrow_terminal(busy: Operator) -> None:
    assert busy.run("status").stdout == OVERVIEW


@pytest.mark.usefixtures("narrow")
def test_one_process_on_a_narrow_terminal(busy: Operator) -> None:
    (name,) = busy.process("weighted").holders
    arn = f"arn:aws:states:us-east-1:123456789012:execution:Workflow:{name}"
    assert busy.run("status", "weighted").stdout == ONE.format(arn=arn, digest=name[-6:])


def test_ids_are_whole_where_no_width_limits_them(busy: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    (name,) = busy.process("weighted").holders
    shown = busy.run("status", "weighted").stdout
    assert f"{LONG}  RUNNING  1 min       5  RUNNING  no Glue run found  {name}\n" in shown
    assert f"next: {LONG}, waiting for 59 s: 1 of 1 slot in use\n" in busy.run("status").stdout


def test_the_json_of_one_process_has_what_its_holders_run(busy: Operator) -> None:
    (process,) = busy.run("status", "sample", "--json").json["processes"]
    (holder,) = process["holders"]
    (name,) = busy.process().holders
    assert (holder["execution"], holder["request_id"], holder["execution_status"]) == (name, "a", "RUNNING")
    assert (holder["since"], holder["age_seconds"]) == ("2026-09-21T14:13:20Z", 60)
    assert holder["glue_run"] == {"id": "jr_1", "state": "RUNNING"}
    assert holder["link"].endswith(f"execution:Workflow:{name}")
    (lease,) = busy.run("status", "licence", "--json").json["processes"][0]["holders"]
    assert (lease["execution"], lease["until"], lease["seconds_left"]) == ("lease-1", "2026-09-21T14:13:50Z", -30)
    shown = busy.run("status", "licence").stdout
    assert "leases only" in shown
    assert "lease-1  LEASED  1 min  expired 30 s ago" in shown


def test_drift_pause_and_settings_are_shown(operator: Operator) -> None:
    operator.hold("a")
    operator.processes.pause("sample")
    edit(operator, "slots_in_use", {"N": "2"})
    machine = operator.machine()
    operator.processes.create("flows", 2, machine, timeout_minutes=30, settle_seconds=60)

    assert "2 of 1  PAUSED  DRIFTED: 1 holder\n" in operator.run("status").stdout
    shown = operator.run("status", "flows").stdout
    assert f"state machine {machine}; work is stopped after 30 min; slots are kept for 1 min after an abort" in shown


@pytest.mark.parametrize(
    ("in_use", "limit", "bar"),
    [
        (0, 0, ".........."),
        (2, 0, "##########"),
        (1, 500, "#........."),
        (499, 500, "#########."),
        (7, 7, "##########"),
    ],
)
def test_a_bar_is_full_only_if_the_limit_is(in_use: int, limit: int, bar: str) -> None:
    assert status.slots_bar(in_use, limit) == f"[{bar:.<10}]"


def test_of_many_holders_the_youngest_are_not_read(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MAX_DETAILED", 2)
    operator.processes.set_limit("sample", 7)
    for number in range(7):
        operator.hold(f"r{number}")
    shown = operator.run("status", "sample", "--json").json
    assert [each["why"] for each in shown["not_read"]] == ["the requests and the work of the 5 youngest holders"]
    assert [bool(each["request_id"]) for each in shown["processes"][0]["holders"]] == [True] * 2 + [False] * 5


def test_queues_beyond_the_scan_are_read_by_themselves(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    operator.wait("q")
    cut = Queues({"sample": ProcessQueue("sample", None, Listed(), NOW)}, Listed(is_cut=True))
    monkeypatch.setattr(answer, "queues", lambda _: cut)
    assert operator.run("status", "--json").json["processes"][0]["queue"]["queued"] == 1


DENIED = {"Error": {"Code": "AccessDeniedException"}}
NO_SCAN = {"Scan": lambda asked: DENIED if asked.get("IndexName") == "place" else None}


def test_a_process_that_is_added_between_two_reads_is_neither_removed_nor_an_error(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account(StackConnection("slotkeeper"))
    operator.wait("a")
    with monkeypatch.context() as patch:  # as if they were read before `sample` was added
        patch.setattr(account, "processes", lambda: ([], []))
        assert not [*slot_checks.removed(account, NOW)]
    operator.processes.create("added-now", 0, "job")
    monkeypatch.setattr(account, "processes", account.control.read_all)  # newer than the queues, which are kept
    assert not [each for each in slot_checks.idle(account, NOW) if each.process == "added-now"]
    shown = {each["name"]: each["queue"]["queued"] for each in answer.status(account)["processes"]}
    assert shown == {"added-now": 0, "sample": 1}


def test_without_a_scan_each_queue_is_read_by_itself(busy: Operator) -> None:
    before = busy.run("status", "--json").json["processes"]
    with StubbedCalls("dynamodb", NO_SCAN):
        assert busy.run("status", "--json").json["processes"] == before


def test_a_queue_that_cannot_be_read_is_not_an_empty_one(operator: Operator) -> None:
    with StubbedCalls("dynamodb", {"Query": lambda _: DENIED, **NO_SCAN}):
        data, shown = operator.run("status", "--json").json, operator.run("status").stdout

    assert (data["processes"][0]["queue"]["queued"], data["not_read"][0]["source"]) == (None, "RequestTable")
    assert "its queue could not be read" in shown
    assert "Not read: RequestTable: Query failed with AccessDeniedException" in shown
    assert "idle" not in shown


def test_common_options_before_the_command_apply_unless_repeated_after_it(operator: Operator) -> None:
    assert operator.run("--json", "status").json["stack"] == "slotkeeper"
    assert operator.run("--stack", "nowhere", "status").exit_code == 4
    assert operator.run("--stack", "nowhere", "status", "--stack", "slotkeeper").exit_code == 0


@pytest.mark.parametrize("error", [TooLarge("too large"), InvalidMessage("too odd"), MalformedRow("too malformed")])
def test_an_error_of_the_layer_is_printed_without_traceback(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(status, "read_status", fail)

    ended = operator.run("status")

    assert (ended.exit_code, ended.stderr) == (1, f"slotkeeper: {error}\n")


CONDITIONS = {"chatbot": ("HasChatbot", "HasRefresher"), "worker": ("HasWorker",)}


@pytest.fixture
def slots_alone(operator: Operator) -> Operator:
    """An operator of a stack without the optional flows."""
    for name in [name for flow in FLOWS for name in filter(flow.has, operator.outputs)]:
        del operator.outputs[name]
    return operator


def test_the_outputs_of_each_flow_are_those_of_the_template() -> None:
    outputs = parsed_template()["Outputs"]
    for flow in FLOWS:
        of_condition = {name for name, each in outputs.items() if each.get("Condition") in CONDITIONS[flow.name]}
        assert of_condition == set(filter(flow.has, outputs))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("token", "show"), "the chatbot is not deployed in this stack: deploy the stack with ChatApiUrl=https://..."),
        (("retry", "list"), "the worker is not deployed in this stack: deploy the stack with DeployWorker=true"),
        (("dlq", "show", "work"), "the worker is not deployed in this stack"),
        (("dlq", "redrive", "schedule", "--all", "--yes"), "the worker is not deployed in this stack"),
    ],
)
def test_a_command_of_an_absent_flow_names_its_parameter(
    slots_alone: Operator, arguments: tuple[str, ...], expected: str
) -> None:
    ended = slots_alone.run(*arguments)
    assert (ended.exit_code, expected in ended.stderr) == (4, True)


def test_status_and_dlq_list_show_the_deployed_queues_only(slots_alone: Operator) -> None:
    seen = slots_alone.run("status", "--json").json
    assert seen["queues"].keys() == {"RequestQueue", "DispatchQueue", "EndingQueue", "RequestDeadLetterQueue"}
    assert seen["not_deployed"] == ["chatbot", "worker"]
    assert "Not deployed: chatbot (deploy with ChatApiUrl=https://...), worker" in slots_alone.run("status").stdout
    assert [one["queue"] for one in slots_alone.run("dlq", "list", "--json").json["queues"]] == ["request"]


def test_stack_outputs_names_the_flows_that_have_none_on_stderr(slots_alone: Operator) -> None:
    asked = slots_alone.run("stack", "outputs", "--export")
    assert "WORK_QUEUE_URL" not in asked.stdout
    assert "The worker is not deployed, and its outputs are missing: deploy with DeployWorker=true." in asked.stderr
    assert slots_alone.run("stack", "outputs", "--json").json["not_deployed"] == ["chatbot", "worker"]
