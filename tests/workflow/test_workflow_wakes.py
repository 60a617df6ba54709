"""The workflow's wake: the same request as the layer's, and a bounded number of registrations cleared."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

import pytest

from slotkeeper.slots.process import WaitingRequest, higher
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import MAX_WAKES
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import PRIORITIES
from tests.workflow.case import CONTEXT, DELAYS, ENTERED
from tests.workflow.interpreter import STATES, StateFailed, Variables

LIMIT = 5
TOMBSTONE = {"sequence": {"S": "1"}, "receives": {"N": "3"}}
WEIGHTS = (None, 0, 1, 3, LIMIT + 1)  # no entry, a tombstone, and registrations; the last one is blocked

# Errors of `aws-sdk:sqs` have the names of the Java SDK's exceptions; a code without a class is Sqs.SqsException (Step
# Functions guide, "Learning to use AWS service SDK integrations"). A FIFO queue rejects an expired handle as an invalid
# parameter (re:Post, "How do I resolve the ReceiptHandleIsInvalid or InvalidParameterValue error").
_AT_SQS = "(Service: Sqs, Status Code: 400, Request ID: 1)"
REJECTED_HANDLES = [
    {
        "Error": "Sqs.SqsException",
        "Cause": f"Value AQEB for parameter ReceiptHandle is invalid. Reason: {reason} {_AT_SQS}",
    }
    for reason in (
        "The receipt handle has expired.",
        "Message does not exist or is not available for visibility timeout change.",
    )
] + [
    {"Error": "Sqs.MessageNotInflightException", "Cause": f"The specified message is not in flight. {_AT_SQS}"},
    {"Error": "Sqs.MessageNotInflightException"},
    {"Error": "Sqs.ReceiptHandleIsInvalidException", "Cause": f"The input receipt handle is invalid. {_AT_SQS}"},
]
OTHER_SQS_ERRORS = [
    {"Error": "States.Timeout"},
    {"Error": "Sqs.SdkClientException", "Cause": "Unable to execute HTTP request"},
    {"Error": "Sqs.RequestThrottledException", "Cause": f"Rate exceeded {_AT_SQS}"},
    {"Error": "Sqs.QueueDoesNotExistException", "Cause": f"The specified queue does not exist. {_AT_SQS}"},
    {
        "Error": "Sqs.SqsException",
        "Cause": f"User: u is not authorized to perform: sqs:changemessagevisibility {_AT_SQS}",
    },
]


class _OneItem:
    """A DynamoDB client of one item, which records the last write."""

    def __init__(self, item: dict[str, Any]) -> None:
        self._item = item
        self.written: dict[str, Any] = {}

    def get_item(self, **_asked: Any) -> dict[str, Any]:
        return {"Item": self._item}

    def update_item(self, **written: Any) -> dict[str, Any]:
        self.written = written
        return {}


def _registration(priority: str, weight: int) -> dict[str, Any]:
    return TOMBSTONE | {
        "receipt_handle": {"S": f"handle-{priority}"},
        "priority": {"S": priority},
        "weight": {"N": str(weight)},
        "since": {"N": "1"},
        "execution": {"S": f"p-{priority}"},
        "hidden_until": {"N": "9"},
    }


def _item(weights: tuple[int | None, ...], in_use: int, paused: bool = False) -> dict[str, Any]:
    entries = {
        priority: {"M": _registration(priority, weight) if weight else TOMBSTONE}
        for priority, weight in zip(PRIORITIES, weights, strict=True)
        if weight is not None
    }
    numbers = {"slot_limit": {"N": str(LIMIT)}, "slots_in_use": {"N": str(in_use)}}
    return numbers | {"waiting": {"M": entries}} | ({"paused": {"BOOL": True}} if paused else {})


def _woken_by_the_workflow(item: dict[str, Any]) -> tuple[str, int] | None:
    _, variables = STATES["ReadWaiting"].leave(CONTEXT, {}, result={"Item": item})
    if STATES["IsRequestWaiting"].choose(CONTEXT, variables) != "WakeWaiting":
        return None
    arguments = STATES["WakeWaiting"].value("Arguments", CONTEXT, variables)
    return arguments["ReceiptHandle"], arguments["VisibilityTimeout"]


def _woken_by_the_layer(item: dict[str, Any]) -> tuple[str, int] | None:
    wake = Slots(cast(Any, _OneItem(item)), "slots").to_wake("p", ENTERED / 1000)
    return (wake.waiting.receipt_handle, wake.delay) if wake else None


@pytest.mark.parametrize(("in_use", "paused"), [(2, False), (4, False), (LIMIT, False), (LIMIT + 2, False), (2, True)])
def test_the_workflow_wakes_the_same_request_as_the_layer(in_use: int, paused: bool) -> None:
    woken = set()
    for weights in product(WEIGHTS, repeat=len(PRIORITIES)):
        item = _item(weights, in_use, paused)
        assert _woken_by_the_workflow(item) == _woken_by_the_layer(item), item
        woken.add(_woken_by_the_layer(item))
    handles = {(f"handle-{priority}", 0) for priority in PRIORITIES}
    assert woken == {None} | (handles if in_use < LIMIT and not paused else set())


@pytest.mark.parametrize(("turn_seconds", "ahead", "delay"), DELAYS)
def test_the_workflow_and_the_layer_delay_a_wake_by_the_rest_of_a_turn(
    turn_seconds: int, ahead: int, delay: int
) -> None:
    for turns in product((None, "high", "normal", "low"), repeat=2):
        began = {f"turn_{priority}": {"N": str(ENTERED + ahead)} for priority in turns if priority}
        for priority in PRIORITIES:
            weights = tuple(1 if each == priority else None for each in PRIORITIES)
            item = _item(weights, 2) | began | {"turn_seconds": {"N": str(turn_seconds)}}
            is_delayed = any(f"turn_{each}" in began for each in higher(priority))
            expected = (f"handle-{priority}", delay if is_delayed else 0)
            assert _woken_by_the_workflow(item) == _woken_by_the_layer(item) == expected


@pytest.mark.parametrize(("count", "seconds", "burst"), [(10, 60, 1), (7, 60, 3), (3, 1, 2), (1, 86_400, 1)])
def test_the_workflow_and_the_layer_delay_a_wake_until_the_rate_permits_a_start(
    count: int, seconds: int, burst: int
) -> None:
    rate, delays = Rate(count, seconds, burst), set()
    for left, began in product((-1, 0, 1, 999, 1000, 5400, 90_000_000), (None, -5, -1, 0, 2)):
        paced = {"rate": rate.item, "next_start": {"N": str(ENTERED + left + rate.lead)}}
        turn = {} if began is None else {"turn_high": {"N": str(ENTERED + left - rate.interval + began)}}
        for priority in PRIORITIES:
            weights = tuple(1 if each == priority else None for each in PRIORITIES)
            item = _item(weights, 2) | paced | turn
            assert _woken_by_the_workflow(item) == _woken_by_the_layer(item), item
            delays.add(_woken_by_the_layer(item))
    assert {("handle-high", 5), ("handle-low", 5), ("handle-low", 7), ("handle-low", 1800)} <= delays


def test_a_turn_lasts_a_second_without_a_setting() -> None:
    item = _item((None, None, 1), 2) | {"turn_normal": {"N": str(ENTERED)}}
    assert _woken_by_the_workflow(item) == _woken_by_the_layer(item) == ("handle-low", 1)


def test_the_workflow_clears_a_registration_like_the_layer() -> None:
    entry, table = _registration("low", 3), _OneItem({})
    waiting = WaitingRequest(
        "low",
        "handle-low",
        sequence="1",
        receives=3,
        weight=3,
        since=1,
        execution="p-low",
        request_id="",
        hidden_until=9,
    )
    Slots(cast(Any, table), "slots").clear("p", waiting, ENTERED / 1000)
    arguments = STATES["ClearWaiting"].value("Arguments", CONTEXT, {"first": entry})
    for field in ("UpdateExpression", "ConditionExpression"):
        named = arguments[field]
        for name, attribute in arguments["ExpressionAttributeNames"].items():
            named = named.replace(name, attribute)
        assert named == table.written[field]
    assert arguments["ExpressionAttributeValues"] == table.written["ExpressionAttributeValues"]


def _after_the_wake(error: dict[str, str], wakes: int) -> tuple[str, Variables]:
    """The state after a wake that failed, when so many registrations have been cleared."""
    failed = StateFailed(error["Error"], error.get("Cause"))
    following, variables = STATES["WakeWaiting"].catch(failed, CONTEXT, {"wakes": wakes})
    return STATES[following].choose(CONTEXT, variables), variables


@pytest.mark.parametrize("error", REJECTED_HANDLES, ids=lambda error: error["Error"])
def test_a_registration_is_cleared_and_the_next_request_woken_only_if_sqs_rejects_the_handle(
    error: dict[str, str],
) -> None:
    following, variables = _after_the_wake(error, 0)
    assert following == "ClearWaiting"
    assert STATES["ClearWaiting"].leave(CONTEXT, variables)[0] == "ReadWaiting"


@pytest.mark.parametrize("error", OTHER_SQS_ERRORS, ids=lambda error: error["Error"])
def test_an_error_that_does_not_reject_the_handle_clears_no_registration(error: dict[str, str]) -> None:
    """The message may be hidden, and without its registration no wake would come for it."""
    assert _after_the_wake(error, 0)[0] == "ChooseOutcome"


def test_the_workflow_tries_as_many_wakes_as_the_layer() -> None:
    """Each execution counts from its own release, whether or not the clear was refused."""
    wakes = 1
    _, variables = STATES["ReleaseSlot"].leave(CONTEXT, {})
    while wakes <= MAX_WAKES:
        following, variables = _after_the_wake(REJECTED_HANDLES[0], variables["wakes"])
        if following != "ClearWaiting":
            break
        state, refused = STATES["ClearWaiting"], StateFailed("DynamoDB.ConditionalCheckFailedException", "changed")
        assert state.leave(CONTEXT, variables) == state.catch(refused, CONTEXT, variables)
        _, variables = state.leave(CONTEXT, variables)
        wakes += 1
    assert wakes == MAX_WAKES
    assert STATES["ReleaseSlot"].catch(StateFailed("States.Timeout"), CONTEXT, {})[1] == {"wakes": 0}
