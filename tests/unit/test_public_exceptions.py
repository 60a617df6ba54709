"""The exceptions that callers receive can be sent to another process, as pools of processes do."""

from __future__ import annotations

import pickle

import pytest

from slotkeeper import retry, slots, token
from slotkeeper.slots.process import Holder, MalformedProcess, Process
from slotkeeper.slots.request import InvalidRequest

PUBLIC = {
    exported
    for package in (slots, token, retry)
    for exported in vars(package).values()
    if isinstance(exported, type) and issubclass(exported, Exception)
}
FULL = Process("p", 1, 1, {"p-1": Holder("RUNNING", 1, "job", None, {"since": {"N": "1"}})}, paused=False, target="job")
EXAMPLES = [
    InvalidRequest("body is not JSON"),
    MalformedProcess("slot_limit must be of DynamoDB type N", "p"),
    slots.NestedLease("this thread already holds a slot"),
    slots.SlotLost("the lease has ended"),
    slots.SlotUnavailable("no slot was available", FULL),
    token.AuthenticationNotAttempted("no connection", pause=2.5),
    token.AuthenticationRefused("wrong password", retry_after=30.0),
    token.HttpFailed("GET / has no answer"),
    token.MalformedToken("generation must be of DynamoDB type N"),
    token.NoConnection("no connection was made"),
    token.NotSent("no time was left"),
    token.StillUnauthorized("the API answered 401"),
    token.TokenError("there is no valid token"),
    token.TokenRefused("wrong password", until=1_800_000_000.5),
    token.TokenTimeout("no valid token in time"),
    token.Unauthorized("401"),
    retry.Poison("no such order"),
    retry.Retryable("busy", retry_after="30"),
]


def test_each_public_exception_has_an_example() -> None:
    assert {type(example) for example in EXAMPLES} == PUBLIC


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_pickled_exception_has_its_message_and_attributes(error: Exception) -> None:
    error.add_note("a note")
    pickled = pickle.dumps(error)
    try:
        copied = pickle.loads(pickled)  # noqa: S301 pickled here
    except TypeError as failure:
        pytest.fail(f"it cannot be unpickled: {failure}")
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))
