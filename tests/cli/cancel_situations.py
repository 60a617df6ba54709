"""What `slotkeeper request cancel` answers."""

from __future__ import annotations

from functools import partial

from tests.cli.account_contents import edit, fail, succeed
from tests.cli.operator_account import NOW, Operator
from tests.cli.situations import Names, Situation


def _queued(operator: Operator) -> Names:
    """a runs; b, c and d are queued, c with a higher priority."""
    names = {"a": operator.hold("a")}
    return names | {each: operator.wait(each, priority="high" if each == "c" else "normal") for each in "bcd"}


def _in_two_processes(operator: Operator) -> Names:
    operator.processes.create("other", 1, "sample-job")
    return {"here": operator.wait("a"), "there": operator.wait("a", "other")}


def _only_one_is_open(operator: Operator) -> None:
    operator.processes.create("other", 1, "sample-job")
    succeed(operator, "a", "other")
    operator.wait("a")


def _cancelled_before(operator: Operator) -> None:
    operator.leave(operator.wait("a"), "CANCELLED", "Cancelled", "cancelled by someone")


def _ended(end: str, code: str, operator: Operator) -> None:
    deadline = {"start_before": "2026-09-21T14:13:50Z"} if end == "TOO_LATE" else {}
    operator.leave(operator.wait("a", **deadline), end, code, "so it is")


def _starting(operator: Operator) -> None:
    operator.hold("a", confirmed=False)


def _malformed_item(operator: Operator) -> None:
    operator.hold("a")
    operator.wait("b")
    edit(operator, "slot_limit", {"S": "one"})


SITUATIONS = {
    "two of three queued requests are cancelled": Situation(
        _queued,
        "request cancel b {d} --yes",
        says=("cancelled: b (sample)\n", "cancelled: d (sample)\n", "2 requests cancelled, 0 left."),
    ),
    "the question names them": Situation(
        _queued,
        "request cancel b c",
        says=(
            "Cancel 2 queued requests (b, c), so that they never start, and their callers get an error?",
            "give --yes to confirm",
        ),
        exit_code=6,
    ),
    "one of them runs": Situation(
        _queued,
        "request cancel a b --yes",
        says=(
            "cancelled: b",
            "left: a: it has run since 2026-09-21 14:13:20 UTC: give --stop to stop it",
            "1 request cancelled, 1 left.",
            "1 request left, for the reasons above",
        ),
        exit_code=1,
    ),
    "it runs": Situation(
        _queued,
        "request cancel a --yes",
        says=("nothing was cancelled:", "left: a: it has run since 2026-09-21 14:13:20 UTC: give --stop to stop it"),
        exit_code=3,
    ),
    "one question for what is cancelled and what is stopped": Situation(
        _queued,
        "request cancel a b --stop",
        says=(
            "Cancel 1 queued request (b),",
            "Stop a, running since 2026-09-21 14:13:20 UTC, and its Glue run, so that its work is lost,",
        ),
        exit_code=6,
    ),
    "it runs, and is stopped": Situation(
        _queued,
        "request cancel a --stop --yes",
        says=("stopped: a  {a}. Its Glue run is stopped, then the request has failed. Its slot is free by about",),
    ),
    "it is being started": Situation(
        _starting,
        "request cancel a --stop --yes",
        says=("a: it has a slot, and starts: to stop it, give --stop in some seconds",),
        exit_code=3,
    ),
    "all of a process": Situation(
        _queued,
        "request cancel --process sample --all --yes",
        says=("cancelled: c", "cancelled: b", "cancelled: d", "3 requests cancelled, 0 left."),
        never=("left: a",),
    ),
    "all of a process: the dry run": Situation(
        _queued,
        "request cancel --process sample --all --dry-run",
        says=("would be cancelled: c", "would be cancelled: b", "3 requests would be cancelled, 0 left."),
        shows={"dry_run": True, "cancelled.0.request_id": "c", "left": []},
    ),
    "the question names how many of the queue it is": Situation(
        _queued,
        "request cancel --process sample --all --priority high",
        says=("Cancel 1 of 3 queued requests of sample (c),",),
        exit_code=6,
    ),
    "all of one priority": Situation(
        _queued,
        "request cancel --process sample --all --priority high --yes",
        says=("cancelled: c (sample)\n1 request cancelled, 0 left.",),
    ),
    "all that are older than a time": Situation(
        _queued,
        "request cancel --process sample --all --older-than 1m --yes",
        says=("3 requests cancelled",),
        at=NOW + 61,
    ),
    "none is older": Situation(
        _queued,
        "request cancel --process sample --all --older-than 2h --yes",
        says=("no such request of sample is queued. Nothing was changed.",),
        exit_code=4,
    ),
    "several processes have the id": Situation(
        _in_two_processes,
        "request cancel a --yes",
        says=(
            "several requests have the id a: give --process, or the name of an execution.",
            "{there} (other)",
            "{here}",
        ),
        exit_code=3,
    ),
    "several processes have the id, and one is named": Situation(
        _in_two_processes, "request cancel a --process other --yes", says=("cancelled: a (other)\n",), never=("sample",)
    ),
    "several processes have the id, and in one it has ended": Situation(
        _only_one_is_open, "request cancel a --yes", says=("1 request cancelled",)
    ),
    "no process has the id": Situation(
        _queued, "request cancel b typo --yes", says=("no request typo found: slotkeeper explain",), exit_code=4
    ),
    "it was cancelled before": Situation(
        _cancelled_before,
        "request cancel a --yes",
        says=("left: a: it was cancelled before", "0 requests cancelled, 1 left."),
    ),
    **{
        f"it ended as {end}": Situation(
            partial(_ended, end, code), "request cancel a --yes", says=(f"a: it has ended: {state}",), exit_code=3
        )
        for end, code, state in (
            ("SKIPPED", "Skipped", "skipped"),
            ("TOO_LATE", "TooLate", "too late"),
            ("REJECTED", "NameTaken", "rejected"),
        )
    },
    "it has failed": Situation(
        lambda operator: fail(operator) and None,
        "request cancel a --yes",
        says=("a: it has ended: failed",),
        exit_code=3,
    ),
    "the item of its process is malformed": Situation(
        _malformed_item,
        "request cancel b --yes",
        says=("cancelled: b", "Warning: whether its requests have slots is not known"),
    ),
    "it runs, and the item of its process is malformed": Situation(
        _malformed_item,
        "request cancel a --stop --yes",
        says=("a: the item of its process could not be read",),
        exit_code=3,
    ),
}
