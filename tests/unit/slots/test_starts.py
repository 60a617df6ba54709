"""The meaning of each answer of StartExecution for a reservation."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError

from slotkeeper.aws.dynamodb import number
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.plan import PlannedStart
from slotkeeper.slots.request_table import QueuedBody
from slotkeeper.slots.starts import (
    AGE_SECONDS,
    LATEST_START_SECONDS,
    NotStarted,
    OtherExecution,
    Reserved,
    Settled,
    StartRefused,
    Unsure,
    in_threads,
)
from tests.simulation.account.boundary import passed_values, refuse
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene, reserved

LIMIT = 9


def grant(scene: QueueScene, *names: str) -> Reserved:
    """Reserve slots in one grant."""
    made = scene.grants.grant(scene.process, [PlannedStart(name, 1) for name in names], 0, NOW)
    return Reserved("p", dict.fromkeys(names, 1), {}, made.grants, NOW)  # type: ignore[union-attr]


def text(scene: QueueScene, name: str) -> str:
    return str(scene.row(name)["body"]["S"])


# Outcomes


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("AccessDeniedException", NotStarted),
        ("ExecutionLimitExceeded", NotStarted),
        ("InvalidArn", NotStarted),
        ("InvalidExecutionInput", StartRefused),
        ("InvalidName", StartRefused),
        ("KmsAccessDeniedException", NotStarted),
        ("KmsInvalidStateException", NotStarted),
        ("KmsThrottlingException", NotStarted),
        ("StateMachineDeleting", NotStarted),
        ("StateMachineDoesNotExist", NotStarted),
        ("ThrottlingException", NotStarted),
        ("ValidationException", NotStarted),
        ("InternalServerError", Unsure),
        ("ServiceUnavailable", Unsure),
        ("AnErrorOfTomorrow", Unsure),
    ],
)
def test_only_an_error_that_states_so_has_started_nothing(
    code: str, outcome: type[NotStarted | StartRefused | Unsure], scene: QueueScene
) -> None:
    scene.aws.start_errors["p-a"] = code
    answer = scene.starts.start("p-a", "{}")
    assert type(answer) is outcome
    assert code in answer.reason


def test_each_documented_error_has_a_meaning_of_its_own(scene: QueueScene) -> None:
    """Step Functions API Reference, StartExecution, Errors, as botocore has them."""
    operation = scene.stepfunctions.meta.service_model.operation_model("StartExecution")
    scene.aws.execution("p-a", "SUCCEEDED")
    for error in operation.error_shapes:
        scene.aws.start_errors["p-a"] = error.name
        assert not isinstance(scene.starts.start("p-a", "{}"), Unsure)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ReadTimeoutError, Unsure), (ConnectTimeoutError, NotStarted), (EndpointConnectionError, NotStarted)],
)
def test_a_call_without_an_answer_is_uncertain_unless_it_was_never_sent(
    error: type[Any], outcome: type[Any], scene: QueueScene
) -> None:
    def fail(**_: Any) -> None:
        raise error(endpoint_url="the service")

    scene.stepfunctions.meta.events.register("before-call.stepfunctions.StartExecution", fail)
    assert type(scene.starts.start("p-a", "{}")) is outcome


def test_another_execution_of_the_name_is_shown_with_its_start(scene: QueueScene) -> None:
    scene.aws.execution("p-a", "SUCCEEDED", started=NOW)
    assert scene.starts.start("p-a", "{}") == OtherExecution(NOW)
    refuse(scene.stepfunctions, "DescribeExecution", "ThrottlingException")
    assert scene.starts.start("p-a", "{}") == OtherExecution(None)


# Reservations


def test_started_requests_are_marked_in_the_order_of_their_grant(scene: QueueScene) -> None:
    names = scene.queue("a", "b")
    settled = scene.starter.start(grant(scene, *names))
    assert settled == Settled(
        started={name: QueuedBody("QUEUED", text(scene, name), NOW, "normal", NOW) for name in names}
    )
    assert [scene.row(name)["granted"]["S"] for name in names] == ["0000000000000008#00", "0000000000000008#01"]
    assert scene.states == {"a": "STARTED", "b": "STARTED"}
    assert [each["input"] for each in scene.aws.started] == [text(scene, name) for name in names]


def test_after_a_throttle_nothing_more_is_started_and_one_write_puts_the_rest_back(scene: QueueScene) -> None:
    names = scene.queue("a", "b", "c", "d")
    given = grant(scene, *names)
    scene.aws.start_errors[names[1]] = "ThrottlingException"
    scene.aws.made.clear()

    settled = scene.starter.start(given)

    assert ([*settled.started], settled.put_back) == (names[:1], names[1:])
    assert "ThrottlingException" in settled.not_started
    # The first UpdateItem marks the first request, the second one puts the others back, and the rest note that.
    made = ["BatchGetItem", "StartExecution", "UpdateItem", "StartExecution", "UpdateItem"]
    assert scene.aws.made == made + ["UpdateItem"] * 3
    assert (scene.process.holders.keys(), scene.process.slots_in_use) == ({names[0]}, 1)
    assert scene.process.grants == given.grants + 1
    # From here on their order counts, and not from the grant that was taken back.
    assert [scene.row(name).get("put_back") for name in names] == [None, *[number(given.grants + 1)] * 3]
    assert scene.states == {"a": "STARTED"} | dict.fromkeys("bcd", "QUEUED")


def test_an_old_reservation_that_is_throttled_stays(scene: QueueScene) -> None:
    """Its first start, by the invocation that died, may have succeeded."""
    old, fresh = scene.queue("old", "fresh")
    scene.hold({old: reserved(NOW - 60)})
    given = grant(scene, fresh)
    scene.aws.start_errors[old] = "ThrottlingException"
    settled = scene.starter.start(Reserved("p", {fresh: 1}, {old: 1}, given.grants, NOW))
    assert (settled.put_back, scene.holders) == ([fresh], {"old": "RESERVED"})


@pytest.mark.parametrize("code", ["InvalidExecutionInput", "InvalidName"])
def test_a_refused_request_ends_with_its_reservation(code: str, scene: QueueScene) -> None:
    names = scene.queue("a", "b")
    given = grant(scene, *names)
    scene.aws.start_errors[names[0]] = code

    settled = scene.starter.start(given)

    (rejected,) = settled.rejected
    assert (settled.removed, rejected.code, code in rejected.reason) == (True, "InvalidExecution", True)
    assert (scene.states, scene.holders) == ({"a": "REJECTED", "b": "STARTED"}, {"b": "RESERVED"})
    assert scene.process.grants == given.grants + 1  # a plan made before is outdated


@pytest.mark.parametrize(
    ("before_acceptance", "state"), [(CLOCK_SKEW_SECONDS + 1, "REJECTED"), (CLOCK_SKEW_SECONDS, "QUEUED")]
)
def test_a_name_is_taken_if_its_execution_began_before_the_request_was_accepted(
    before_acceptance: float, state: str, scene: QueueScene
) -> None:
    """A later one is its own, and has closed: the handler of closed executions ends row and reservation."""
    (name,) = scene.queue("a")
    scene.aws.execution(name, "FAILED", started=NOW - before_acceptance)
    settled = scene.starter.start(grant(scene, name))
    assert [each.code for each in settled.rejected] == ["NameTaken"] * (state == "REJECTED")
    assert scene.states == {"a": state}
    assert scene.holders == ({} if state == "REJECTED" else {"a": "RESERVED"})
    assert not settled.unsure


def test_a_taken_name_whose_execution_is_not_shown_is_uncertain(scene: QueueScene) -> None:
    (name,) = scene.queue("a")
    scene.aws.execution(name, "FAILED", started=NOW - 86_400)
    refuse(scene.stepfunctions, "DescribeExecution", "ThrottlingException")
    assert scene.starter.start(grant(scene, name)) == Settled(unsure=[name])


def test_an_old_reservation_of_an_ended_request_is_dropped_and_that_of_a_started_one_stays(scene: QueueScene) -> None:
    ended, started = scene.queue("ended", "started")
    scene.hold({name: reserved(NOW - 60) for name in (ended, started, "p-none")})
    scene.end(ended, "SUCCEEDED")
    scene.end(started, "STARTED")
    old = dict.fromkeys((ended, started, "p-none"), 1)
    assert scene.starter.start(Reserved("p", {}, old, 7, NOW)) == Settled(removed=True)
    assert (scene.holders, scene.process.grants) == ({"started": "RESERVED"}, 7)
    assert scene.aws.executions == {}


def test_what_was_not_read_is_put_back_if_it_is_new_and_tried_again_if_it_is_old(scene: QueueScene) -> None:
    old, fresh, read = scene.queue("old", "fresh", "read")
    scene.hold({old: reserved(NOW - 60)})
    given = grant(scene, fresh, read)
    scene.aws.unread = {old, fresh}
    settled = scene.starter.start(Reserved("p", given.fresh, {old: 1}, given.grants, NOW))
    assert ([*settled.started], settled.put_back, settled.not_started) == ([read], [fresh], "the row was not read")
    assert scene.holders == {"old": "RESERVED", "read": "RESERVED"}
    alone = scene.starter.start(Reserved("p", {}, {old: 1}, given.grants, NOW))
    assert alone == Settled(not_started="the row was not read")


def test_long_after_its_grant_nothing_is_started_since_another_dispatch_may_do_it(scene: QueueScene) -> None:
    """A call takes up to five seconds, and after AGE_SECONDS any dispatch starts the reservation again."""
    names = scene.queue("a", "b")
    given = grant(scene, *names)
    scene.now = NOW + LATEST_START_SECONDS
    started = scene.starter.start(given)
    assert ([*started.started], LATEST_START_SECONDS + 5 < AGE_SECONDS) == (names, True)
    (late,) = scene.queue("c")
    given = grant(scene, late)
    scene.now += 0.1
    settled = scene.starter.start(given)
    assert (settled.put_back, settled.not_started) == ([late], "too late after the grant")
    assert (scene.states["c"], scene.ran) == ("QUEUED", ["a", "b"])


def test_starts_in_threads_have_the_results_in_order() -> None:
    assert in_threads(str, range(20)) == [str(number) for number in range(20)]
    assert in_threads(str, []) == []


def test_bodies_are_read_consistently(scene: QueueScene) -> None:
    names = scene.queue("a")
    reads = passed_values(scene.dynamodb, "BatchGetItem", "RequestItems")
    scene.starter.start(grant(scene, *names))
    assert [each["requests"]["ConsistentRead"] for each in reads] == [True]
