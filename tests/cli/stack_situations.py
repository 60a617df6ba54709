"""What `slotkeeper status`, `slotkeeper stack outputs` and `slotkeeper process remove` answer."""

from __future__ import annotations

from tests.cli.account_contents import wait_first
from tests.cli.operator_account import Operator
from tests.cli.situations import Names, Situation


def _b_and_c_behind_a(operator: Operator) -> Names:
    return {"a": operator.hold("a"), "b": operator.wait("b"), "c": operator.wait("c", priority="high")}


def _disabled(operator: Operator) -> Names:
    operator.event_source = "Disabled"
    return _b_and_c_behind_a(operator)


def _as_deployed(operator: Operator) -> Names:
    return {"queue": operator.outputs["RequestQueueUrl"], "table": operator.outputs["SlotTableName"]}


def _held_and_queued(operator: Operator) -> None:
    """One request holds the slot, the heads of two priorities wait, and another request is behind them."""
    operator.hold("a")
    operator.wait("b")
    operator.wait("c", priority="high")
    operator.send("d")


def _head_waits(operator: Operator) -> None:
    wait_first(operator)


SITUATIONS = {
    "two requests wait for the only slot": Situation(
        _b_and_c_behind_a,
        "status sample",
        says=(
            "a  RUNNING for 1 min",
            "{a}",
            "first in the queue: c (priority high), waiting for 1 min: 1 of 1 slot in use\n",
            "first in the queue: b, waiting for 1 min: 1 of 1 slot in use; behind the higher priority high: c\n",
        ),
        shows={"processes.0.holders.0.request_id": "a", "processes.0.waiting.1.execution": "{b}"},
    ),
    "the event source is disabled": Situation(
        _disabled,
        "status",
        says=(
            "first in the queue: b, waiting for 1 min: no function receives messages of the queue",
            "RequestQueue: no function receives messages of the queue",
            "-> aws lambda update-event-source-mapping",
        ),
        shows={"event_source.0.state": "Disabled"},
    ),
    "an operator asks for names and URLs": Situation(
        _as_deployed,
        "stack outputs",
        says=("RequestQueueUrl ", "  {queue}\n", "SlotTableName ", "  {table}\n"),
        never=("export ", "not deployed"),
        shows={
            "stack": "slotkeeper",
            "local": False,
            "outputs.RequestQueueUrl": "{queue}",
            "export.REQUEST_QUEUE_URL": "{queue}",
            "export.SLOT_TABLE_NAME": "{table}",
            "unset": [],
            "not_deployed": [],
        },
    ),
    "a shell takes them, with the user's own credentials": Situation(
        _as_deployed,
        "stack outputs --export --profile mine",
        says=(
            "export SLOTKEEPER_STACK=slotkeeper\nexport AWS_REGION=us-east-1\nexport AWS_DEFAULT_REGION=us-east-1\n"
            "export AWS_PROFILE=mine\n",
            "export REQUEST_QUEUE_URL={queue}\n",
            "export SLOT_TABLE_NAME={table}\n",
        ),
        never=("AWS_ACCESS_KEY_ID", "AWS_SECRET", "AWS_CONFIG_FILE", "AWS_ENDPOINT_URL", "SLOTKEEPER_LOCAL", "unset"),
    ),
    "a process with a holder and waiting requests: the question": Situation(
        _held_and_queued,
        "process remove sample",
        says=(
            "Remove process sample? It is paused first, and removed when its 1 holder (1 slot) ended, for which the "
            "command waits 1 h at most. 2 requests are registered as next, and RequestQueue has about 4 messages of "
            "all processes: those of sample are dead-lettered as UnknownProcess.",
            "give --yes to confirm. Nothing was changed.",
        ),
        exit_code=6,
    ),
    "a process was removed: how to run its requests": Situation(
        _head_waits,
        "process remove sample --yes",
        says=(
            "Its queued requests go to RequestDeadLetterQueue as UnknownProcess. To run them:",
            "slotkeeper process add sample --limit 0 --target sample-job",
            "slotkeeper dlq redrive request --code UnknownProcess",
        ),
    ),
}
