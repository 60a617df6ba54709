"""What `slotkeeper process repair` answers, and what other commands answer while an item is malformed."""

from __future__ import annotations

from tests.command.account_contents import NOW, add_malformed, edit, send_dead_letter
from tests.command.operator_account import Operator
from tests.command.situations import Names, Situation

REPAIR = "process repair sample --yes"


def _a_text(operator: Operator) -> None:
    edit(operator, "slot_limit", {"S": "5"})


def _no_limit_of_the_stacks_process(operator: Operator) -> None:
    edit(operator, "slot_limit", None)


def _a_word_and_no_source(operator: Operator) -> None:
    operator.processes.create("other", 2, "sample-job")
    edit(operator, "slot_limit", {"S": "two"}, "other")


def _a_word_after_a_change(operator: Operator) -> None:
    operator.processes.create("other", 2, "sample-job")
    operator.run("process", "set-limit", "other", "4")
    edit(operator, "slot_limit", {"S": "two"}, "other")


def _two_faults(operator: Operator) -> None:
    _a_text(operator)
    edit(operator, "slots_in_use", None)
    edit(operator, "paused", {"S": "false"})


def _a_holder_that_is_a_text(operator: Operator) -> Names:
    name = operator.hold("a")
    edit(operator, f"holders/{name}", {"S": "broken"})
    return {"a": name}


def _a_lease_without_end(operator: Operator) -> None:
    operator.lease("lease-1", int(NOW) + 600)
    edit(operator, "holders/lease-1/until", None)


def _no_grants(operator: Operator) -> None:
    """As in an item that was written manually."""
    edit(operator, "grants", None)
    edit(operator, "ring_at", {"S": "soon"})


def _only_a_malformed_process(operator: Operator) -> None:
    operator.dynamodb.delete_item(TableName=operator.outputs["SlotTableName"], Key={"process_name": {"S": "sample"}})
    add_malformed(operator)


def _also_a_malformed_process(operator: Operator) -> Names:
    add_malformed(operator)
    send_dead_letter(operator, '{"process": "odd", "request_id": "r"}')
    operator.wait("queued", "odd")
    return {"a": operator.hold("a")}


NAMED = "process odd: slot_limit must be of DynamoDB type N"
COMMAND = "slotkeeper process repair odd"

SITUATIONS = {
    "the limit is a text with the number": Situation(
        _a_text,
        "process repair sample --dry-run",
        says=(
            "sample: 1 malformed attribute.",
            'slot_limit must be of DynamoDB type N, has {"S": "5"}',
            'slot_limit: {"N": "5"} (the value itself)',
        ),
        never=("is valid", "written;"),
        shows={
            "faults.0.path.0": "slot_limit",
            "changes.0.has.S": "5",
            "changes.0.writes.N": "5",
            "changes.0.source": "the value itself",
            "written": False,
        },
    ),
    "the stack's process has no limit": Situation(
        _no_limit_of_the_stacks_process,
        REPAIR,
        says=(
            "slot_limit must be of DynamoDB type N, has no value",
            "The stack adds it with SlotLimit 3, which a command may have changed since.",
            "no value is known to be safe: slot_limit",
        ),
        exit_code=3,
    ),
    "the limit is a word, and a command has changed it before": Situation(
        _a_word_after_a_change,
        "process repair other --yes",
        says=(
            "The audit log: ",
            ' process set-limit {"before": 2, "after": 4}',
            "no value is known to be safe: slot_limit",
            "process repair other --set slot_limit=VALUE",
            "Nothing was",
        ),
        shows={"open.0": "slot_limit", "written": False},
        exit_code=3,
    ),
    "the operator states a limit that is not valid": Situation(
        _a_word_and_no_source,
        "process repair other --set slot_limit=100001 --yes",
        says=("slot limit must be a whole number from 0 to 100000, got 100001", "Nothing was changed"),
        exit_code=2,
    ),
    "the operator states a text for a number": Situation(
        _a_word_and_no_source,
        "process repair other --set slot_limit=many --yes",
        says=("slot_limit must be a whole number, got 'many'", "Nothing was changed"),
        exit_code=2,
    ),
    "the operator states an attribute that is valid": Situation(
        _a_text, "process repair sample --set target=other --yes", says=("target: it is not malformed",), exit_code=2
    ),
    "two attributes are malformed, and one is missing": Situation(
        _two_faults,
        REPAIR,
        says=(
            "3 attributes written; the item is valid now",
            "3 malformed attributes",
            'paused: {"BOOL": false}',
            "slots_in_use: ",
        ),
    ),
    "a holder is a text": Situation(
        _a_holder_that_is_a_text,
        REPAIR,
        says=(
            "the item is valid now",
            'holders.{a}: {"M": {"state": {"S": "RUNNING"}, "since": ',
            "its execution; its weight: ",
        ),
    ),
    "a lease has no end": Situation(
        _a_lease_without_end,
        REPAIR,
        says=(
            "the item is valid now",
            f'holders.lease-1.until: {{"N": "{int(NOW) + 60 + 86_400}"}} (the longest that a lease can still last)',
        ),
    ),
    "no value of grants, and a time of a ring that is a text": Situation(
        _no_grants,
        REPAIR,
        says=(
            "the item is valid now",
            f'grants: {{"N": "{int(NOW) + 60}000"}} (the time, which no plan of a dispatch contains)',
            "ring_at: removed (the next dispatch rings again, if it must)",
        ),
    ),
    "the item is valid": Situation(
        lambda _: None,
        REPAIR,
        says=("sample: every attribute is valid. There is nothing to repair.",),
        shows={"valid": True, "written": False},
    ),
    "there is no such process": Situation(
        add_malformed,
        "process repair unknown --yes",
        says=("there is no process 'unknown'. The processes are: odd (malformed), sample",),
        exit_code=4,
    ),
    "the repair is not confirmed": Situation(
        _a_text,
        "process repair sample",
        says=('slot_limit: {"N": "5"}', "give --yes to confirm. Nothing was changed."),
        exit_code=6,
    ),
    # ----------------------------------------------------------------- the other commands while an item is malformed
    "the only process is malformed, and the processes are listed": Situation(
        _only_a_malformed_process,
        "process list",
        says=(NAMED, COMMAND),
        never=("There are no processes",),
        shows={"processes": [], "malformed.0": NAMED + ", got {'S': '3'}"},
    ),
    "a malformed process is not reconciled": Situation(
        _also_a_malformed_process,
        "stack reconcile --check",
        says=("1 malformed process was neither compared nor changed", NAMED, COMMAND),
        never=("matches the running executions",),
        exit_code=5,
    ),
    "a request is submitted to a malformed process": Situation(
        _also_a_malformed_process,
        "request submit --process odd --request-id r",
        says=(NAMED, COMMAND),
        never=("there is no process",),
    ),
    "the only process is malformed, and all are paused": Situation(
        _only_a_malformed_process,
        "process pause --all",
        says=("1 process not paused", COMMAND),
        never=("there are no processes",),
        exit_code=1,
    ),
    **{
        f"another process is malformed: {question}": Situation(
            _also_a_malformed_process, question, says=says, exit_code=exit_code
        )
        for question, exit_code, says in (
            ("status odd", 1, ("process 'odd'", "slot_limit", COMMAND)),
            ("stack reconcile odd --check", 1, ("the item of process 'odd' in SlotTable is malformed", COMMAND)),
            ("process pause --all", 1, ("sample: paused", "1 process not paused", NAMED, COMMAND)),
            ("process resume --all --force", 1, ("sample: resumed", "1 process not resumed", NAMED, COMMAND)),
            (
                "process set-limit sample 2",
                0,
                ("sample: 1 -> 2 slots", "its slots for sample-job are not counted", COMMAND),
            ),
            (
                "holder release unknown",
                3,
                ("no request 'unknown' holds a slot of the processes that could be read", NAMED, COMMAND),
            ),
            (
                "request cancel unknown --yes",
                4,
                ("whether its requests have slots is not known", NAMED, COMMAND, "no request unknown found"),
            ),
            ("request list odd", 0, ("queued   59 s   the item of process odd is malformed", COMMAND)),
            ("request cancel queued --yes", 0, ("cancelled: queued", "1 request cancelled, 0 left.", NAMED, COMMAND)),
            (
                "dlq redrive request --all --yes",
                3,
                ("left: r (odd, attempt 1): the item of process 'odd' is malformed", COMMAND),
            ),
            (
                "doctor --only processes --only drift",
                5,
                (NAMED, COMMAND, "is the sum of its holders' weights (not checked: odd)"),
            ),
        )
    },
}
