"""What `slotkeeper status`, `slotkeeper stack outputs` and `slotkeeper process remove` answer."""

from __future__ import annotations

from slotkeeper.slots.rate import Rate
from tests.command.operator_account import NOW, Operator
from tests.command.situations import Names, Situation


def _own_settings(operator: Operator) -> None:
    rate = Rate(10, 60, 2)
    operator.processes.create("own", 8, "sample-job", default_weight=4, timeout_minutes=30, rate=rate)
    operator.wait("a", "own")


def _b_and_c_behind_a(operator: Operator) -> Names:
    return {"a": operator.hold("a"), "b": operator.wait("b"), "c": operator.wait("c", priority="high")}


def _disabled(operator: Operator) -> Names:
    operator.event_source = "Disabled"
    return _b_and_c_behind_a(operator)


def _as_deployed(operator: Operator) -> Names:
    return {"queue": operator.outputs["RequestQueueUrl"], "table": operator.outputs["SlotTableName"]}


def _lease(operator: Operator, seconds: int) -> None:
    operator.lease("lease-1", int(NOW) + seconds)


def _blocked(operator: Operator) -> None:
    """More requests are above the limit than status names, and one waits for the slot."""
    operator.hold("a")
    operator.wait("b")
    for number in range(12):
        operator.wait(f"h{number}", weight=2)


SITUATIONS = {
    "two requests wait for the only slot": Situation(
        _b_and_c_behind_a,
        "status sample",
        says=(
            "2 queued, the oldest for 59 s\n",
            "next: c (priority high), waiting for 59 s: 1 of 1 slot in use\n",
            "a       RUNNING  1 min  RUNNING",
            "{a}",
        ),
        never=("blocked",),
        shows={
            "processes.0.holders.0.request_id": "a",
            "processes.0.queue.queued": 2,
            "processes.0.queue.is_cut": False,
            "processes.0.queue.first.execution": "{c}",
            "processes.0.queue.first.position": 1,
        },
    ),
    "requests are above the limit, and keep no other back": Situation(
        _blocked,
        "status sample",
        says=(
            "-> slotkeeper process set-limit sample 2",
            "13 queued",
            "next: b, waiting for 59 s: 1 of 1 slot in use",
            "blocked: h0 (weight 2), waiting for 59 s: blocked: weight 2 above the limit 1",
            "blocked: h9",
        ),
        never=("h10",),
    ),
    "a request waits for the slot of a lease": Situation(
        lambda operator: _lease(operator, 900) or (operator.wait("b") and None),
        "request show b",
        says=("lease-1  LEASED for ",),
    ),
    "a lease has not ended: it is not judged by Step Functions": Situation(
        lambda operator: _lease(operator, 900),
        "stack reconcile --check",
        says=("SlotTable matches the running executions.",),
        shows={"dead": [], "expired": []},
    ),
    "a lease has ended": Situation(
        lambda operator: _lease(operator, 0),
        "stack reconcile --check",
        says=("1 lease has expired.\n", "  lease-1\n"),
        shows={"expired": ["lease-1"]},
        exit_code=5,
    ),
    "an event source is disabled": Situation(
        _disabled,
        "status",
        says=(
            "bad   no function receives messages of RequestQueue: its event source mapping is Disabled",
            "-> aws lambda update-event-source-mapping",
            "no function receives messages of DispatchQueue",
            "next: c",
        ),
        shows={"event_source.0.queue": "RequestQueue", "event_source.1.queue": "DispatchQueue"},
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
            "export.REQUEST_TABLE_NAME": "RequestTable",
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
    "a process with a holder and queued requests: the question": Situation(
        _b_and_c_behind_a,
        "process remove sample",
        says=(
            "Remove process sample? It is paused first, and removed when its 1 holder (1 slot) ended, for which the "
            "command waits 1 h at most. Queued requests are rejected as UnknownProcess: 2 requests wait.",
            "give --yes to confirm. Nothing was changed.",
        ),
        exit_code=6,
    ),
    "a process was removed: how to run its requests": Situation(
        lambda operator: operator.wait("a") and None,
        "process remove sample --yes",
        says=(
            "sample is removed. Its queued requests are rejected as UnknownProcess. To run them:",
            "  slotkeeper process add sample --limit 1 --target sample-job\n",
            "  slotkeeper failed redrive --process sample --code UnknownProcess\n",
        ),
    ),
    "a process with settings of its own was removed": Situation(
        _own_settings,
        "process remove own --yes",
        says=(
            "  slotkeeper process add own --limit 8 --target sample-job --default-weight 4 --timeout-minutes 30 --rate "
            "10/minute --burst 2\n",
        ),
    ),
    "a process without requests was removed": Situation(
        lambda _: None, "process remove sample --yes", says=("sample is removed.\n",), never=("To run them",)
    ),
}
