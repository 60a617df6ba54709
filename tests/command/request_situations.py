"""What `slotkeeper request cancel`, `request submit` and `failed` answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from slotkeeper.slots.request import execution_name
from slotkeeper.slots.request_table import Leaving
from slotkeeper_cli.requests import FailureGroup
from tests.command.account_contents import edit, fail, fail_held, job_run, set_in_row, succeed
from tests.command.operator_account import NOW, Operator
from tests.command.situations import Names, Situation

State = Callable[[Operator], Names | None]
LATE = "--start-before 2099-11-28T08:00:00Z"
MONTHS = FailureGroup("sample", "Glue.Failed", "no month # of #").id


def _answers(state: State, *rows: tuple[Any, ...]) -> dict[str, Situation]:
    """Rows of one state: the question, the exit code, the texts of the answer, and perhaps more fields of the row."""
    found = {}
    for question, exit_code, *says in rows:
        more = says.pop() if says and isinstance(says[-1], dict) else {}
        found[f"{_name_of(state)}: {question}"] = Situation(state, question, tuple(says), exit_code=exit_code, **more)
    return found


def _name_of(state: Any) -> str:
    """The name of a function; of a partial one also what is given to it."""
    given = " ".join(_name_of(each) for each in getattr(state, "args", ()))
    return given or str(getattr(state, "__name__", state)).strip("_").replace("_", " ")


# States ---------------------------------------------------------------------------------------------------------------


def _empty(_: Operator) -> None:
    """The process sample has no requests."""


def _heavy_and_paused(operator: Operator) -> None:
    operator.processes.create("heavy", 4, "sample-job", default_weight=5)
    operator.processes.create("paused", 1, "sample-job")
    operator.processes.pause("paused")


def _one_runs_three_wait(operator: Operator) -> Names:
    """a runs; b, c and d are queued, c with a higher priority."""
    names = {"a": operator.hold("a")}
    return names | {each: operator.wait(each, priority="high" if each == "c" else "normal") for each in "bcd"}


def _queued_in_two_processes(operator: Operator) -> Names:
    operator.processes.create("other", 1, "sample-job")
    return {"here": operator.wait("a"), "there": operator.wait("a", "other")}


def _ended_in_one_of_two_processes(operator: Operator) -> None:
    operator.processes.create("other", 1, "sample-job")
    succeed(operator, "a", "other")
    operator.wait("a")


def _starting(operator: Operator) -> None:
    operator.hold("a", confirmed=False)


def _malformed_item(operator: Operator) -> None:
    operator.hold("a")
    operator.wait("b")
    edit(operator, "slot_limit", {"S": "one"})


def _ended(end: str, code: str, operator: Operator) -> None:
    deadline = {"start_before": "2026-09-21T14:13:50Z"} if end == "TOO_LATE" else {}
    operator.leave(operator.wait("a", **deadline), end, code, "so it is")


def _succeeded(operator: Operator) -> None:
    succeed(operator)


def _queued(operator: Operator) -> None:
    operator.wait("a")


def _failed(operator: Operator) -> None:
    fail(operator)


def _five_failures(operator: Operator) -> Names:
    """Two equal failures, another one, one of another process, and one that was too late."""
    operator.processes.create("other", 1, "sample-job")
    names = {
        each: fail(operator, each, job_run(f"no month 2026-1{each[-1]} of {each}")) for each in ("order1", "order2")
    }
    names["b"] = fail(operator, "b", "HTTP 503")
    fail(operator, "c", "HTTP 404", "other")
    operator.leave(operator.wait("late", start_before="2026-09-21T14:13:50Z"), "TOO_LATE", "TooLate", "so late")
    return names


def _failed_in_two_processes(operator: Operator) -> Names:
    operator.processes.create("other", 1, "sample-job")
    return {"here": fail(operator), "there": fail(operator, process="other")}


def _failed_and_one_succeeded(operator: Operator) -> None:
    """A third has lost its slot before its work began, and waits again."""
    fail(operator)
    lost = operator.hold("c", confirmed=False)
    operator.release(lost)
    operator.give_back(lost)
    assert operator.outcomes.succeeded("sample", operator.hold("b"), NOW + 50)


def _of_an_unknown_process(operator: Operator) -> None:
    name = operator.wait("a", "typo")
    operator.requests.end_homeless("typo", [Leaving(name, "REJECTED", "UnknownProcess", "no such")], NOW, exists=False)
    operator.publish(name, "typo")


def _failed_with_a_malformed_item(operator: Operator) -> None:
    fail(operator)
    edit(operator, "slot_limit", {"S": "one"})


def _failed_of_a_paused_process(operator: Operator) -> None:
    fail(operator)
    operator.processes.pause("sample")


def _failed_of_leases(operator: Operator) -> None:
    fail(operator)
    edit(operator, "target", {"S": "none"})


def _malformed_row(operator: Operator) -> None:
    fail(operator, "a")
    set_in_row(operator, fail(operator, "b"), sent={"S": "yesterday"})


def _discarded(operator: Operator) -> None:
    assert operator.requeues.discard("sample", fail(operator))


def _long_cause(length: int, operator: Operator) -> None:
    fail(operator, cause=f"Error in line: {'x ' * length}: no such file")


# The requests of the situations of submit have these arguments.
_ARGUMENTS = {"--day": "1"}


def _redriven(operator: Operator) -> Names:
    name = fail(operator, arguments=_ARGUMENTS, cause=job_run("no such month"))
    operator.requeues.redrive("sample", [name], NOW)
    return {"again": execution_name("sample", "a", 2)}


def _succeeded_when_redriven(operator: Operator) -> Names:
    names = _redriven(operator)
    operator.start(names["again"])
    operator.succeed(names["again"])
    return names


def _failed_when_redriven(operator: Operator) -> Names:
    """Another request was skipped, which is no failure."""
    names = _redriven(operator)
    operator.leave(operator.wait("s"), "SKIPPED", "Skipped", "busy")
    operator.start(names["again"])
    return {"again": fail_held(operator, names["again"])}


def _returned(operator: Operator) -> Names:
    name = operator.hold("a", confirmed=False, arguments=_ARGUMENTS)
    operator.release(name)
    return {"again": operator.give_back(name)}


def _sent_and(do: Callable[..., str], operator: Operator) -> Names:
    return {"a": do(operator, "a", arguments=_ARGUMENTS)}


def _sent_and_ended(end: str, code: str, operator: Operator) -> None:
    operator.leave(operator.wait("a", arguments=_ARGUMENTS), end, code, "so it is")


# Answers --------------------------------------------------------------------------------------------------------------

_STOP = "give --stop to stop it"
_SINCE = f"it has run since 2026-09-21 14:13:20 UTC: {_STOP}"
_SAMPLE = "request cancel --process sample --all"
_CANCEL = {
    **_answers(
        _one_runs_three_wait,
        ("request cancel b {d} --yes", 0, "cancelled: b (sample)\n", "cancelled: d (sample)\n", "2 requests cancelled"),
        (
            "request cancel b c",
            6,
            "Cancel 2 queued requests (b, c), so that they never start, and their callers",
            "give --yes to confirm",
        ),
        (
            *("request cancel a b --yes", 1, "cancelled: b", f"left: a: {_SINCE}", "1 request cancelled, 1 left."),
            "1 request left, for the reasons above",
        ),
        ("request cancel a --yes", 3, "nothing was cancelled:", f"left: a: {_SINCE}"),
        (
            "request cancel a b --stop",
            6,
            "Cancel 1 queued request (b),",
            "Stop a, running since 2026-09-21 14:13:20",
            " UTC, and its Glue run, so that its work is lost,",
        ),
        (
            *("request cancel a --stop --yes", 0, "stopped: a  {a}. Its Glue run is stopped, then the request has"),
            "failed. Its slot is free by about",
        ),
        (
            *(f"{_SAMPLE} --yes", 0, "cancelled: c", "cancelled: b", "cancelled: d", "3 requests cancelled, 0 left."),
            {"never": ("left: a",)},
        ),
        (
            *(f"{_SAMPLE} --dry-run", 0, "would be cancelled: c", "3 requests would be cancelled, 0 left."),
            {"shows": {"dry_run": True, "cancelled.0.request_id": "c", "left": []}},
        ),
        (f"{_SAMPLE} --priority high", 6, "Cancel 1 of 3 queued requests of sample (c),"),
        (f"{_SAMPLE} --priority high --yes", 0, "cancelled: c (sample)\n1 request cancelled, 0 left."),
        (f"{_SAMPLE} --older-than 1m --yes", 0, "3 requests cancelled", {"at": NOW + 61}),
        (f"{_SAMPLE} --older-than 2h --yes", 4, "no such request of sample is queued. Nothing was changed."),
        ("request cancel b typo --yes", 4, "no request typo found: slotkeeper explain"),
    ),
    **_answers(
        _queued_in_two_processes,
        (
            "request cancel a --yes",
            3,
            "several requests have the id a: give --process, or the name of an execution.",
            "{there} (other)",
            "{here}",
        ),
        ("request cancel a --process other --yes", 0, "cancelled: a (other)\n", {"never": ("sample",)}),
    ),
    **_answers(_ended_in_one_of_two_processes, ("request cancel a --yes", 0, "1 request cancelled")),
    **_answers(_starting, ("request cancel a --stop --yes", 3, "a: it has a slot, and starts: to stop it, give")),
    **_answers(
        partial(_ended, "CANCELLED", "Cancelled"),
        ("request cancel a --yes", 0, "left: a: it was cancelled before", "0 requests cancelled, 1 left."),
        ("failed redrive a --process sample --yes", 0, "redriven: a (sample) as sample-"),
    ),
    **_answers(_failed, ("request cancel a --yes", 3, "a: it has ended: failed")),
    **_answers(
        _malformed_item,
        ("request cancel b --yes", 0, "cancelled: b", "Warning: whether its requests have slots is not known"),
        ("request cancel a --stop --yes", 3, "a: the item of its process could not be read"),
    ),
}

_EACH = "each as its next attempt"
_NOTHING = "List the failures with: slotkeeper failed list. Nothing was changed."
_FAILED = {
    **_answers(
        _five_failures,
        (
            *("failed list", 0, "  other  1 failure, 30 s ago  1 of 1 that ended in 24 h failed\n"),
            "          Glue.Failed: HTTP 404\n",
            f"{MONTHS}  sample  2 failures, 30 s ago  4 of 4 that ended in 24 h failed\n",
            "          Glue.Failed: no month # of #\n5 failures in 4 groups.",
            {
                "never": ("order1", "Not read"),
                "shows": {
                    "failures": 5,
                    "groups.3.requests": 2,
                    "groups.3.group": MONTHS,
                    "groups.3.first": "2026-09-21T14:13:50Z",
                    "groups.3.newest": "order2",
                    "groups.3.of_process.failed": 4,
                },
            },
        ),
        ("failed list --process other", 0, "HTTP 404\n1 failure"),
        ("failed list --code TooLate", 0, "so late\n1 failure"),
        ("failed list --reason 'http 5'", 0, "HTTP 503\n1 failure"),
        ("failed list --until 1m", 0, "5 failures in 4 groups until 2026-09-21 14:14:20 UTC.", {"at": NOW + 120}),
        ("failed list --since 1m", 0, "No failures since 2026-09-21 14:14:20 UTC.", {"at": NOW + 120}),
        ("failed list --limit 3", 0, "1 more not shown: above --limit 3", "5 failures in 4 groups."),
        (
            *(f"failed show {MONTHS}", 0, f"{MONTHS}  sample  Glue.Failed: no month # of #", "  order"),
            "attempt 1  2026-09-21 14:13:50 UTC",
            {"never": ("  b  ",), "shows": {"groups.0.rows.1.state": "failed"}},
        ),
        (
            *("failed show order1", 0, "order1 in sample: failed", "reason: no month 2026-11 of order1"),
            *('cause: {"Arguments":{"--month":"13"}', "failed glue run: jr_1"),
            'body: {"arguments":{},"attempt":1,"process":"sample","request_id":"order1"}',
            "link: https://us-east-1.console.aws.amazon.com/states/home?region=us-east-1#/v2/executions/details/arn:",
            {"never": ("weight",), "shows": {"request.execution": "{order1}", "request.code": "Glue.Failed"}},
        ),
        ("failed show typo", 4, "no group and no request typo found.", _NOTHING),
        ("failed discard --code Typo --yes", 4, "there is no such failure.", _NOTHING),
        ("failed discard order1 --code TooLate --yes", 4, "no group and no request order1 found.", _NOTHING),
        (
            *(f"failed redrive {MONTHS} --yes", 0, "redriven: order1 (sample) as", "redriven: order2 (sample) as"),
            "2 requests redriven, 0 left.",
        ),
        (
            *("failed redrive --process sample", 6, "1 request is left: see --dry-run."),
            f"Queue 3 failed requests (order1, order2, b) again, {_EACH}?",
        ),
        (
            *(f"failed redrive b late {LATE}", 6, "Queue 2 requests, 1 failed, 1 too late (b, late) again, "),
            f"{_EACH}, to start before 2099-11-28 08:00:00 UTC where it had a deadline?",
        ),
        (f"failed discard {MONTHS} b", 6, "Discard 3 failed requests (order1, order2, b) with their contents, so that"),
        (
            *("failed redrive --process sample --dry-run", 1, "would be redriven: order1 (sample)\n"),
            "left: late: its start_before has passed: give a later one with --start-before",
            "3 requests would be redriven, 1 left.",
            {"shows": {"dry_run": True, "redriven.0.execution": "{order1}", "left.0.request_id": "late"}},
        ),
        (f"failed redrive late {LATE} --yes", 0, "redriven: late (sample) as"),
        (
            *("failed redrive --since 2026-09-21T14:00", 6, "Failures since 2026-09-21 14:00:00 UTC:\n"),
            "Queue 4 failed requests (order1, order2, b, c) again",
        ),
    ),
    **_answers(
        _failed_and_one_succeeded,
        ("failed list", 0, "30 s ago  1 of 2 that ended in 24 h failed"),
        ("failed list --until 1m", 0, "1 of 1 that ended in 24 h failed", {"at": NOW + 100}),
        (
            "failed list --since 2h",
            0,
            "1 of 2 that ended failed\n",
            "1 failure in 1 group since 2026-09-21 12:14:20 UTC.",
        ),
        ("failed list", 0, "1 failure, 2 d 23 h ago\n", {"at": NOW + 3 * 86400, "never": ("that ended",)}),
    ),
    **_answers(partial(_long_cause, 400), ("failed list", 0, "Error in line: x", "...", "x : no such file\n")),
    **_answers(
        partial(_long_cause, 3000),
        ("failed show a", 0, "cause: Error in line", "more: --json has the whole text", "x : no such file\n"),
    ),
    **_answers(
        _malformed_row,
        (
            *("failed list", 0, "1 failure in 1 group.", "Not read: RequestTable: 1 row is malformed: request sample-"),
            *("sent must be", {"shows": {"failures": 1, "not_read.0.source": "RequestTable"}}),
        ),
        (
            "failed redrive --process sample --yes",
            0,
            "redriven: a (sample) as sample-",
            "1 request redriven, 0 left.",
            "Not read: RequestTable: 1 row is malformed",
        ),
    ),
    **_answers(
        partial(_ended, "REJECTED", "NameTaken"),
        (
            *("failed show a", 0, "a in sample: rejected", "code: NameTaken", "reason: so it is", "body: {"),
            {"never": ("execution", "sample-", "link"), "shows": {"request.execution": None}},
        ),
        ("request cancel a --yes", 3, "a: it has ended: rejected"),
        ("failed redrive a --yes", 0, "redriven: a (sample) as sample-"),
    ),
    **_answers(
        partial(_ended, "SKIPPED", "Skipped"),
        ("failed redrive a --yes", 0, "redriven: a (sample) as sample-"),
        ("failed discard a --yes", 3, "nothing was discarded:", "left: a: it is skipped, and in no list of failures"),
    ),
    **_answers(
        partial(_ended, "TOO_LATE", "TooLate"),
        ("request cancel a --yes", 3, "a: it has ended: too late"),
        (
            "failed redrive a --yes",
            3,
            "nothing was redriven:",
            "left: a: its start_before has passed: give a later one",
        ),
    ),
    **_answers(
        _failed_when_redriven,
        ("failed show a", 0, "execution: {again}", {"shows": {"request.attempt": 2}}),
        ("failed list", 0, "1 failure, 30 s ago  2 of 2 that ended in 24 h failed"),
    ),
    **_answers(
        _failed_of_a_paused_process,
        ("failed redrive a", 6, "Warning: sample is paused, so its requests wait. Queue 1 failed request (a) again, "),
    ),
    **{
        name: row
        for state, why in {
            _succeeded: "it is succeeded",
            _queued: "it is queued",
            partial(_ended, "REJECTED", "TooLarge"): "it is too large: store its input in S3",
            _discarded: "it was discarded: its content is removed",
            _failed_of_leases: "process sample is for leases only",
            _failed_with_a_malformed_item: "the item of process 'sample' is malformed",
        }.items()
        for name, row in _answers(
            state, ("failed redrive a --yes", 3, "nothing was redriven:", f"left: a: {why}")
        ).items()
    },
    **_answers(
        _of_an_unknown_process,
        (
            *("failed redrive --code UnknownProcess --yes", 3, "left: a: there is no process 'typo'. Add it with: "),
            "slotkeeper process add typo --limit 1 --target JOB_OR_ARN",
        ),
        ("failed discard --process typo --yes", 0, "1 request discarded"),
        ("request list typo", 0, "rejected  a ", "1 min  no such\n"),
    ),
    **_answers(
        _failed_in_two_processes,
        (
            *("failed redrive a --yes", 3, "several requests have the id a: give --process", "{there} (other)"),
            "{here}",
        ),
        ("failed redrive a --process other --yes", 0, "1 request redriven"),
        ("failed discard {there} --yes", 0, "discarded: a (other)\n1 request discarded, 0 left."),
    ),
}

_DAY_1, _DAY_2 = (f"request submit --process sample --request-id a --arg=--day={day}" for day in (1, 2))
_NOT_AGAIN = "The same request was sent before, and does not run again."
_AGAIN = "slotkeeper failed redrive a --process sample"
_SHOW = "Show it with: slotkeeper request show a"
_TO = "request submit --process"
_SENT_AGAIN = (_DAY_1, 0, "sent: a  sample-", {"never": ("not sent",)})
_SUBMIT = {
    **_answers(
        _empty,
        (
            *(f"{_DAY_1} --wait --timeout 0", 1, "sent: a  sample-", "not accepted\n", "1 of 1 request had not ended"),
            " after 0 s. Show the state of each with: slotkeeper explain",
        ),
        (
            *(f"{_TO} unknown", 4, "there is no process 'unknown'. The processes are: sample. Its requests would be"),
            "slotkeeper process add unknown --limit 1 --target JOB_OR_ARN",
        ),
        ("request submit --file -", 4, "the file contains no requests"),
        (f"{_TO} sample --arg=class=x", 2, "Error: Invalid value: --arg must not contain --class"),
        (f"{_TO} sample --request-id ''", 2, "Error: Invalid value: --request-id must be longer than"),
        ("request list sample", 0, "sample has no such request.\n"),
    ),
    **_answers(
        _heavy_and_paused,
        (
            *(f"{_TO} sample --weight 3", 0, "Warning: 1 request of sample above the limit 1 (largest weight: 3)."),
            "slotkeeper process set-limit sample 3",
        ),
        (f"{_TO} heavy", 0, "above the limit 4 (largest weight: 5)"),
        (f"{_TO} heavy --weight 4", 0, "sent: ", {"never": ("Warning",)}),
        (f"{_TO} paused", 0, "Warning: process paused is paused. Resume it with: slotkeeper process resume paused"),
    ),
    **{
        name: row
        for do, state in ((succeed, "succeeded"), (Operator.hold, "started"), (Operator.wait, "queued"))
        for name, row in _answers(
            partial(_sent_and, do),
            *(
                (
                    *(f"{_DAY_2} {option}", 3, "1 id was used by another request in the last 90 days. Give the new "),
                    *("Give the new request another id.", f"request a of sample ({state})", "Nothing was sent."),
                    {"never": ("sent: a", "line 1")},
                )
                for option in ("", "--wait")
            ),
        ).items()
    },
    **_answers(
        partial(_sent_and, succeed),
        (
            *(f"{_DAY_1} --wait", 0, "not sent: a  {a}  succeeded.", _NOT_AGAIN, _SHOW),
            {"shows": {"sent": [], "sent_before.0.state": "succeeded", "sent_before.0.execution": "{a}"}},
        ),
    ),
    **_answers(
        partial(_sent_and, fail),
        (
            *(_DAY_1, 1, "not sent: a  {a}  failed: the job failed.", _NOT_AGAIN, f"next attempt with: {_AGAIN}"),
            f"1 of 1 request failed. Queue them again with: {_AGAIN}",
            {"shows": {"sent": [], "sent_before.0.reason": "the job failed"}},
        ),
    ),
    **_answers(
        partial(_sent_and, Operator.hold),
        (_DAY_1, 0, "not sent: a  {a}  started.", _NOT_AGAIN, _SHOW, {"never": (_AGAIN,)}),
        (f"{_DAY_1} --wait --timeout 0", 1, "not sent: a  {a}  started.", "1 of 1 request had not ended after 0 s"),
    ),
    **_answers(
        _succeeded_when_redriven,
        (
            *(_DAY_1, 0, "not sent: a  {again}  succeeded.", _NOT_AGAIN),
            {"shows": {"sent_before.0.execution": "{again}"}},
        ),
    ),
    **_answers(_failed_when_redriven, (_DAY_1, 1, "not sent: a  {again}  failed: the job failed.", _AGAIN)),
    **_answers(
        _returned,
        (*(_DAY_1, 0, "not sent: a  {again}  queued.", _NOT_AGAIN), {"shows": {"sent_before.0.state": "queued"}}),
    ),
    **_answers(partial(_sent_and_ended, "SKIPPED", "Skipped"), _SENT_AGAIN),
    **_answers(partial(_sent_and_ended, "CANCELLED", "Cancelled"), _SENT_AGAIN),
    **_answers(
        partial(_sent_and_ended, "REJECTED", "InvalidExecution"),
        (_DAY_2, 0, "sent: a  sample-", {"never": ("not sent",)}),
    ),
}
SITUATIONS = {**_CANCEL, **_FAILED, **_SUBMIT}
