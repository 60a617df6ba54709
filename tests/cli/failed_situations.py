"""What `slotkeeper failed` answers."""

from __future__ import annotations

from functools import partial
from typing import Any

from slotkeeper.slots.request import execution_name
from slotkeeper.slots.request_table import Leaving
from slotkeeper_cli.failures import FailureGroup
from tests.cli.account_contents import edit, fail, fail_held, job_run, succeed
from tests.cli.operator_account import NOW, Operator
from tests.cli.situations import Names, Situation

MONTHS = FailureGroup("sample", "Glue.Failed", "no month # of #").id


def _several(operator: Operator) -> Names:
    """Two equal failures, another one, one of another process, and one that was too late."""
    operator.processes.create("other", 1, "sample-job")
    names = {
        each: fail(operator, each, job_run(f"no month 2026-1{each[-1]} of {each}")) for each in ("order1", "order2")
    }
    names["b"] = fail(operator, "b", "HTTP 503")
    fail(operator, "c", "HTTP 404", "other")
    operator.leave(operator.wait("late", start_before="2026-09-21T14:13:50Z"), "TOO_LATE", "TooLate", "so late")
    return names


def _ended(end: str, code: str, operator: Operator) -> None:
    deadline = {"start_before": "2026-09-21T14:13:50Z"} if end == "TOO_LATE" else {}
    operator.leave(operator.wait("a", **deadline), end, code, "so it is")


def _unknown_process(operator: Operator) -> None:
    name = operator.wait("a", "typo")
    operator.requests.end_homeless("typo", [Leaving(name, "REJECTED", "UnknownProcess", "no such")], NOW, exists=False)
    operator.publish(name, "typo")


def _malformed(operator: Operator) -> None:
    fail(operator)
    edit(operator, "slot_limit", {"S": "one"})


def _malformed_row(operator: Operator) -> None:
    fail(operator, "a")
    key = {"process_name": {"S": "sample"}, "execution": {"S": fail(operator, "b")}}
    table = {"TableName": operator.outputs["RequestTableName"], "Key": key}
    values: Any = {":text": {"S": "yesterday"}}
    operator.dynamodb.update_item(**table, UpdateExpression="SET sent = :text", ExpressionAttributeValues=values)


def _leases_only(operator: Operator) -> None:
    fail(operator)
    edit(operator, "target", {"S": "none"})


def _in_two_processes(operator: Operator) -> Names:
    operator.processes.create("other", 1, "sample-job")
    return {"here": fail(operator), "there": fail(operator, process="other")}


def _discarded(operator: Operator) -> None:
    assert operator.requeues.discard("sample", fail(operator))


def _failed_twice(operator: Operator) -> Names:
    again = execution_name("sample", "a", 2)
    operator.requeues.redrive("sample", [fail(operator)], NOW)
    operator.start(again)
    return {"again": fail_held(operator, again)}


_FOUND_NOTHING = "List the failures with: slotkeeper failed list. Nothing was changed."
SITUATIONS = {
    "equal failures are one line": Situation(
        _several,
        "failed list",
        says=(
            "  other  1 failure, 30 s ago  1 of 1 that ended in 24 h failed\n          Glue.Failed: HTTP 404",
            f"{MONTHS}  sample  2 failures, 30 s ago  4 of 4 that ended in 24 h failed\n",
            "          Glue.Failed: no month # of #\n5 failures in 4 groups.",
        ),
        never=("order1", "Not read"),
        shows={
            "failures": 5,
            "groups.3.requests": 2,
            "groups.3.group": MONTHS,
            "groups.3.first": "2026-09-21T14:13:50Z",
            "groups.3.newest": "order2",
            "groups.3.of_process.failed": 4,
        },
    ),
    **{
        f"failures by {options}": Situation(
            _several,
            f"failed list {options}",
            says=(*found, f"{number} failure"),
            at=NOW + 120,
            shows={"failures": number},
        )
        for options, found, number in (
            ("--process other", ["HTTP 404"], 1),
            ("--code TooLate", ["so late"], 1),
            ("--reason 'http 5'", ["HTTP 503"], 1),
            ("--until 1m", [], 5),
        )
    },
    "no failure in the last minute": Situation(
        _several,
        "failed list --since 1m",
        says=("No failures since 2026-09-21 14:14:20 UTC.",),
        at=NOW + 120,
        shows={"groups": []},
    ),
    "more groups than the limit": Situation(
        _several, "failed list --limit 3", says=("1 more not shown: above --limit 3", "5 failures in 4 groups.")
    ),
    "a row is malformed": Situation(
        _malformed_row,
        "failed list",
        says=("1 failure in 1 group.", "Not read: RequestTable: 1 row is malformed: request sample-", "sent must be"),
        shows={"failures": 1, "not_read.0.source": "RequestTable"},
    ),
    "a row is malformed, and the others are redriven": Situation(
        _malformed_row,
        "failed redrive --process sample --yes",
        says=(
            "redriven: a (sample) as sample-",
            "1 request redriven, 0 left.",
            "Not read: RequestTable: 1 row is malformed",
        ),
    ),
    "the requests of a group": Situation(
        _several,
        f"failed show {MONTHS}",
        says=(f"{MONTHS}  sample  Glue.Failed: no month # of #", "  order", "attempt 1  2026-09-21 14:13:50 UTC"),
        never=("  b  ",),
        shows={"groups.0.rows.1.state": "failed"},
    ),
    "one request in full": Situation(
        _several,
        "failed show order1",
        says=(
            "order1 in sample: failed",
            "reason: no month 2026-11 of order1",
            'cause: {"Arguments":{"--month":"13"}',
            "failed glue run: jr_1",
            'body: {"arguments":{},"attempt":1,"process":"sample","request_id":"order1"}',
            "link: https://us-east-1.console.aws.amazon.com/states/home?region=us-east-1#/v2/executions/details/arn:",
        ),
        never=("weight",),
        shows={"request.execution": "{order1}", "request.code": "Glue.Failed"},
    ),
    "one request that never ran has no execution": Situation(
        partial(_ended, "REJECTED", "NameTaken"),
        "failed show a",
        says=("a in sample: rejected", "code: NameTaken", "reason: so it is", "body: {"),
        never=("execution", "sample-", "link"),
        shows={"request.execution": None},
    ),
    "the last attempt of two": Situation(_failed_twice, "failed show a", says=("attempt: 2", "execution: {again}")),
    **{
        f"nothing is found by {question}": Situation(
            _several, f"failed {question}", says=(text, _FOUND_NOTHING), exit_code=4
        )
        for question, text in (
            ("show typo", "no group and no request typo found."),
            ("discard --code Typo --yes", "there is no such failure."),
            ("discard order1 --code TooLate --yes", "no group and no request order1 found."),
        )
    },
    "a group is redriven": Situation(
        _several,
        f"failed redrive {MONTHS} --yes",
        says=(
            "redriven: order1 (sample) as",
            "redriven: order2 (sample) as",
            "2 requests redriven, 0 left.",
        ),
    ),
    **{
        f"the question of {question}": Situation(_several, f"failed {question}", says=(text,), exit_code=6)
        for question, text in (
            (
                "redrive --process sample",
                "1 request is left: see --dry-run. Queue 3 failed requests (order1, order2, b) again, each as its next",
            ),
            (
                f"discard {MONTHS} b",
                "Discard 3 failed requests (order1, order2, b) with their contents, so that they can never",
            ),
        )
    },
    "a filter is redriven, one of it too late: the dry run": Situation(
        _several,
        "failed redrive --process sample --dry-run",
        says=(
            "would be redriven: order1 (sample)\n",
            "left: late: its start_before has passed: give a later one with --start-before",
            "3 requests would be redriven, 1 left.",
        ),
        shows={"dry_run": True, "redriven.0.execution": "{order1}", "left.0.request_id": "late"},
        exit_code=1,
    ),
    "a request that was too late, with a later deadline": Situation(
        _several,
        "failed redrive late --start-before 2099-11-28T08:00:00Z --yes",
        says=("redriven: late (sample) as",),
    ),
    **{
        f"redrive what ended as {end}": Situation(
            partial(_ended, end, code), f"failed redrive a --yes {more}", says=("redriven: a (sample) as sample-",)
        )
        for end, code, more in (
            ("SKIPPED", "Skipped", ""),
            ("CANCELLED", "Cancelled", "--process sample"),
            ("REJECTED", "UnknownProcess", ""),
            ("TOO_LATE", "TooLate", "--start-before 2099-11-28T08:00:00Z"),
        )
    },
    **{
        f"redrive refuses: {why}": Situation(
            state, f"failed redrive {question} --yes", says=("nothing was redriven:", f"left: a: {why}"), exit_code=3
        )
        for why, state, question in (
            ("it is succeeded", lambda operator: succeed(operator) and None, "a"),
            ("it is queued", lambda operator: operator.wait("a") and None, "a"),
            ("its start_before has passed: give a later one", partial(_ended, "TOO_LATE", "TooLate"), "a"),
            ("it is too large: store its input in S3", partial(_ended, "REJECTED", "TooLarge"), "a"),
            ("it was discarded: its content is removed", _discarded, "a"),
            ("process sample is for leases only", _leases_only, "--process sample"),
            ("the item of process 'sample' is malformed", _malformed, "a"),
            (
                "there is no process 'typo'. Add it with: slotkeeper process add typo --limit 1 --target JOB_OR_ARN",
                _unknown_process,
                "--code UnknownProcess",
            ),
        )
    },
    "several processes have the id": Situation(
        _in_two_processes,
        "failed redrive a --yes",
        says=("several requests have the id a: give --process", "{there} (other)", "{here}"),
        exit_code=3,
    ),
    "several processes have the id, and one is named": Situation(
        _in_two_processes, "failed redrive a --process other --yes", says=("1 request redriven",)
    ),
    "an execution is named": Situation(
        _in_two_processes, "failed discard {there} --yes", says=("discarded: a (other)\n1 request discarded, 0 left.",)
    ),
    "discard a failure whose process is gone": Situation(
        _unknown_process, "failed discard --process typo --yes", says=("1 request discarded",)
    ),
    "discard what is no failure": Situation(
        partial(_ended, "SKIPPED", "Skipped"),
        "failed discard a --yes",
        says=("nothing was discarded:", "left: a: it is skipped, and in no list of failures"),
        exit_code=3,
    ),
}
