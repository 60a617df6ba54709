"""Deliveries by a worker that watches its downstream: held back, permitted, and with nothing to wait for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.retry import WorkRequest
from slotkeeper.retry.attempt import WorkDeadLettered, WorkRetried, WorkSucceeded
from slotkeeper.retry.consumer import QUICK_RETRY_SECONDS
from slotkeeper.retry.deferral import WaitsForDownstream
from slotkeeper.retry.downstream.downstreams import DEFAULT
from slotkeeper.retry.downstream.health import Breaker, Budget, Concurrency, Health, State
from slotkeeper.retry.downstream.rules import force_open
from slotkeeper.retry.ledger import DEAD_LETTERED, AlreadySettled
from slotkeeper.retry.message import parse_message
from tests.simulation.account.boundary import refuse
from tests.unit.work_messages import QueuedMessage
from tests.unit.worker_harness import LEASE, NOW, WorkerHarness


def open_breaker(**fields: Any) -> Health:
    return Health(replace(Breaker(State.OPEN, epoch=1, since=NOW, probe_at=NOW + 30), **fields))


OPEN = open_breaker()
HEALTHY = Health(Breaker(healthy=True))


@pytest.fixture
def watching(workplace: WorkerHarness) -> WorkerHarness:
    workplace.use(watches=DEFAULT)
    return workplace


def fails(_request: WorkRequest, _seconds: float) -> None:
    raise ConnectionError("down")


def held_back(workplace: WorkerHarness, message: QueuedMessage) -> float:
    """Deliver a message that must be held back; returns the seconds until it is visible."""
    row, performed, delivered_at = workplace.row(), len(workplace.performed), workplace.now
    assert workplace.deliver(message) is None
    assert isinstance(workplace.left[-1], WaitsForDownstream)
    assert message in workplace.queue
    assert (workplace.row(), len(workplace.performed)) == (row, performed)
    return message.visible_at - delivered_at


def test_a_row_has_the_name_of_the_downstream_that_the_worker_watches(workplace: WorkerHarness) -> None:
    workplace.use(watches="crm")
    workplace.consume(workplace.send(fails=1))
    assert workplace.row()["downstream"] == "crm"


def test_a_request_names_its_downstream(workplace: WorkerHarness) -> None:
    workplace.set_health(OPEN)
    workplace.use(watches=lambda request: request.payload["to"])
    workplace.consumed(workplace.send(to="mail"), WorkSucceeded)
    held_back(workplace, workplace.send("s"))


@pytest.mark.parametrize(
    "health",
    [
        pytest.param(OPEN, id="open"),
        pytest.param(open_breaker(state=State.HALF_OPEN), id="a probe is under way"),
        pytest.param(force_open(HEALTHY, NOW, "planned"), id="opened by an operator"),
        pytest.param(
            replace(HEALTHY, concurrency=Concurrency(1), permits={"other": (NOW + LEASE, 0)}), id="at the limit"
        ),
    ],
)
def test_a_refused_attempt_spends_nothing_and_writes_nothing(watching: WorkerHarness, health: Health) -> None:
    watching.set_health(health)
    seconds = held_back(watching, watching.send())
    assert watching.calls.count("PutItem") + watching.calls.count("UpdateItem") == 0
    assert (watching.row(), watching.health(), watching.dead_letters) == ({}, health, [])
    assert 1 <= seconds <= 32


def test_only_a_retry_waits_for_the_budget(watching: WorkerHarness) -> None:
    watching.put_policy(json.dumps({"default": {"jitter": "none"}, "downstream": {"budget": {"window_seconds": 3600}}}))
    watching.set_health(replace(HEALTHY, budget=Budget(spent=20.0, refilled=NOW)))
    watching.consumed(watching.send(fails=1), WorkRetried)
    (retry,) = watching.queue
    held_back(watching, retry)
    watching.consumed(retry, WorkSucceeded)


def _repeated(watching: WorkerHarness) -> QueuedMessage:
    message = watching.send()
    again = watching.copy(message)
    watching.consume(message)
    return again


def _of_a_reused_id(watching: WorkerHarness) -> QueuedMessage:
    watching.consume(watching.send(a=1))
    return watching.send(a=2)


def _with_a_recorded_plan(watching: WorkerHarness) -> QueuedMessage:
    refuse(watching.sqs, "SendMessage", "Throttling")
    message = watching.send(fails=1)
    watching.deliver(message)
    return message


def _of_a_dead_worker(watching: WorkerHarness) -> QueuedMessage:
    message = watching.send(dies=1)
    watching.deliver(message)
    return message


@pytest.mark.parametrize(
    ("prepare", "outcome"),
    [
        (_repeated, AlreadySettled),
        (_of_a_reused_id, WorkDeadLettered),
        (_with_a_recorded_plan, WorkRetried),
        (_of_a_dead_worker, WorkRetried),
    ],
)
def test_a_message_without_work_does_not_wait_for_the_downstream(
    watching: WorkerHarness, prepare: Callable[[WorkerHarness], QueuedMessage], outcome: type
) -> None:
    message = prepare(watching)
    closed = force_open(HEALTHY, NOW, "planned")
    watching.set_health(closed)
    watching.wait(LEASE)
    watching.consumed(message, outcome)
    assert (watching.performed, watching.health()) == ([("r", 1)], closed)


@pytest.mark.parametrize(
    ("health", "counts"),
    [
        pytest.param(HEALTHY, True, id="healthy"),
        pytest.param(OPEN, False, id="open"),
        pytest.param(Health(), False, id="the last answer was a failure"),
    ],
)
def test_a_death_does_not_count_while_the_downstream_fails(
    watching: WorkerHarness, health: Health, counts: bool
) -> None:
    """The downstream may have kept the call until the function was stopped."""
    message = watching.send(dies=1)
    watching.deliver(message)
    watching.now = message.visible_at
    watching.set_health(health)
    outcome = watching.consumed(message, WorkRetried)
    assert (outcome.died, outcome.counted) == (True, counts)


def test_a_refused_message_whose_row_changes_before_its_claim_is_not_performed(watching: WorkerHarness) -> None:
    """1. The worker is refused. 2. It reads that attempt 1 is in progress, so attempt 2 would not begin. 3. Attempt 1
    ends. 4. The worker claims attempt 2."""
    watching.set_health(HEALTHY)
    watching.consume(watching.send(fails=1))
    (second,) = watching.queue
    opened = open_breaker(since=NOW + 20)
    watching.set_health(opened)
    would_begin = watching.ledger.would_begin
    waiting = watching.ledger.read("r")
    assert waiting is not None
    in_progress = replace(waiting, status="RUNNING", lease_until=NOW + 10_000)

    def changes_after_the_read(*arguments: Any) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(watching.ledger, "read", lambda _request_id: in_progress)
            return would_begin(*arguments)

    watching.ledger.would_begin = changes_after_the_read  # type: ignore[method-assign]
    outcome = watching.consumed(second, WorkRetried)
    assert outcome.reason.startswith("NotPermitted: ")
    assert watching.performed == [("r", 1)]
    assert (parse_message(watching.queue[0].body).attempt, parse_message(watching.queue[0].body).uncounted) == (3, 1)
    assert watching.health() == opened


@pytest.mark.parametrize("attempt", [1, 2])
def test_r3_a_message_that_has_waited_too_long_is_dead_lettered_without_its_work(
    watching: WorkerHarness, attempt: int
) -> None:
    watching.put_policy(json.dumps({"default": {"max_age_seconds": 600, "base_seconds": 30, "cap_seconds": 60}}))
    message = watching.send(fails=attempt - 1)
    if attempt == 2:
        watching.consume(message)
        (message,) = watching.queue
    before = list(watching.performed)
    watching.set_health(force_open(HEALTHY, NOW, "planned"))
    while watching.now <= NOW + 600:
        held_back(watching, message)
        watching.now = message.visible_at
    outcome = watching.consumed(message, WorkDeadLettered)
    assert (outcome.code, watching.row()["status"], watching.row()["attempts"]) == (
        "TooOld",
        DEAD_LETTERED,
        str(attempt),
    )
    dead_letter = watching.dead_letter
    history = json.loads(dead_letter.texts["history"])
    assert [entry["attempt"] for entry in history] == list(range(1, attempt + 1))
    assert history[-1]["error"].startswith(f"TooOld: attempt {attempt} has waited for downstream 'default' (breaker)")
    assert watching.performed == before


@pytest.mark.parametrize("operation", ["GetItem", "PutItem"])
def test_a_message_whose_downstream_cannot_be_asked_is_retried_soon(watching: WorkerHarness, operation: str) -> None:
    message = watching.send()
    refuse(watching.dynamodb, operation, "ThrottlingException", times=1)
    assert watching.deliver(message) is None
    assert (message.visible_at, watching.row(), watching.performed) == (NOW + QUICK_RETRY_SECONDS, {}, [])


def test_without_a_policy_the_built_in_settings_of_downstreams_apply(watching: WorkerHarness) -> None:
    watching.put_policy("{")
    watching.set_health(OPEN)
    held_back(watching, watching.send("waits"))
    watching.set_health(HEALTHY)
    watching.consumed(watching.send("works"), WorkSucceeded)
