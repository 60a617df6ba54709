"""The starter's batches: accepted requests, dispatches, ends to publish, and messages that come again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.aws.dynamodb import Item, number
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots import dispatch, plan
from slotkeeper.slots.dispatch import RESERVE_SECONDS, Report
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.intake import Acceptance, Accepted, Rejected, SameAgain
from slotkeeper.slots.plan import MAX_STARTS
from slotkeeper.slots.queued import behind_key
from slotkeeper.slots.queues import RequestDeadLetterQueue
from slotkeeper.slots.request import MAX_BODY_BYTES, Delivery, Request, caller_of, execution_name
from slotkeeper.slots.starter import DISPATCH_SECONDS, Observer, Starter, parse_bell
from slotkeeper.slots.starts import AGE_SECONDS
from tests.simulation.account.boundary import before_write, lose_answer, passed_values, refuse
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene, running


class Notes(Observer):
    """The starter's reports."""

    def __init__(self) -> None:
        self.acceptances: list[Acceptance] = []
        self.refused: list[tuple[str, str]] = []
        self.dispatches: list[tuple[str, Report]] = []
        self.failures: list[tuple[str, str]] = []
        self.bells: list[Bell] = []

    def accepted(self, request: Request, acceptance: Acceptance, sent_at: float) -> None:
        self.acceptances.append(acceptance)

    def dead_lettered(self, delivery: Delivery, code: str, reason: str) -> None:
        self.refused.append((delivery.message_id, code))

    def dispatched(self, process: str, report: Report) -> None:
        self.dispatches.append((process, report))

    def failed(self, message: str, error: Exception, **details: object) -> None:
        self.failures.append((message, type(error).__name__))

    def rang(self, bell: Bell) -> None:
        self.bells.append(bell)


class StarterScene(QueueScene):
    """The scene of a queue, with the processes `p` and `q`, and the starter."""

    def __init__(self) -> None:
        super().__init__()
        self.aws.tables.put("slots", self.item | {"process_name": {"S": "q"}})
        self.notes = Notes()

    @property
    def door(self) -> Starter:
        dead = RequestDeadLetterQueue(self.sqs, "https://sqs/dead.fifo")
        return Starter(self.tools, self.ending_queue, dead, self.notes)

    def receive(self, *bodies: Any) -> list[str]:
        """Receive messages m1, m2, ... with these bodies; return the ids of those that must stay.

        The message group is the process.
        """
        groups = ["p" if isinstance(body, str) else body["process"] for body in bodies]
        texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
        numbered = enumerate(zip(texts, groups, strict=True), 1)
        return self.door.receive([Delivery(f"m{at}", text, group, str(at), self.now) for at, (text, group) in numbered])

    def ring(self, *bells: Bell | str) -> list[str]:
        """Receive rings r1, r2, ...; return the ids of those that must come again."""
        bodies = [bell if isinstance(bell, str) else bell.to_json() for bell in bells]
        return self.door.rung((f"r{at}", body) for at, body in enumerate(bodies, 1))

    @property
    def started(self) -> list[str]:
        """The executions that the reports state as started."""
        return [name for _, report in self.notes.dispatches for name in report.started]


@pytest.fixture
def scene() -> StarterScene:
    return StarterScene()


def asked(request_id: str = "a", process: str = "p", **fields: Any) -> Item:
    return {"process": process, "request_id": request_id} | fields


def named(*executions: str) -> Item:
    """The message that lets ends of `p` be published."""
    return {"process": "p", "executions": [*executions]}


def _fail(_: Any) -> None:
    raise RuntimeError("the call fails")


def name_of(request_id: str = "a", process: str = "p", token: str = "") -> str:
    return execution_name(process, request_id, 1, caller_of(token))


# RequestQueue


def test_a_batch_is_accepted_and_each_process_is_dispatched_once(scene: StarterScene) -> None:
    kept = scene.receive(asked("a"), asked("b", "q"), asked("c"))
    assert kept == []
    assert scene.notes.acceptances == [Accepted(name_of("a")), Accepted(name_of("b", "q")), Accepted(name_of("c"))]
    assert [process for process, _ in scene.notes.dispatches] == ["p", "q"]
    assert scene.started == [name_of("a"), name_of("b", "q")]
    assert (scene.states, scene.rings) == ({"a": "STARTED", "b": "STARTED", "c": "QUEUED"}, [])


def test_after_a_message_that_was_not_accepted_the_rest_of_its_group_stays(scene: StarterScene) -> None:
    """A later message of a sender must not come first. The index of another process may be full."""

    before_write(scene.dynamodb, lambda _: None, _fail, operation="PutItem")
    assert scene.receive(asked("a"), asked("b"), asked("c", "q"), asked("d")) == ["m2", "m4"]
    assert (scene.states, scene.ran) == ({"a": "STARTED", "c": "STARTED"}, ["a", "c"])
    assert scene.notes.failures == [("Left messages on the queue after an error", "RuntimeError")]


def test_while_a_service_fails_all_others_stay(scene: StarterScene) -> None:
    refuse(scene.dynamodb, "PutItem", "ThrottlingException")
    assert scene.receive(asked("a"), asked("b", "q")) == ["m1", "m2"]
    assert len(scene.notes.failures) == 1


def test_the_same_request_again_causes_no_dispatch(scene: StarterScene) -> None:
    scene.accept(Request("p", {}, "a"), "another")
    assert scene.receive(asked("a")) == []
    assert (scene.notes.acceptances, scene.notes.dispatches) == ([SameAgain(name_of())], [])


def test_what_is_no_request_is_dead_lettered_and_its_end_must_be_published(scene: StarterScene) -> None:
    assert scene.receive("{", asked(key="a\0", task_token="token"), asked("c")) == []
    first, second = scene.aws.sent_to("dead.fifo")
    assert first["MessageBody"] == "{"
    assert "token" not in second["MessageBody"].replace("task_token", "")
    assert {sent["MessageAttributes"]["code"]["StringValue"] for sent in (first, second)} == {"InvalidRequest"}
    assert "body.key must contain no control character" in second["MessageAttributes"]["reason"]["StringValue"]
    refused = [each["refused"] for each in scene.to_publish]
    assert [(each["message_id"], each["code"], each.get("task_token")) for each in refused] == [
        ("m1", "InvalidRequest", None),
        ("m2", "InvalidRequest", "token"),
    ]
    assert scene.notes.refused == [("m1", "InvalidRequest"), ("m2", "InvalidRequest")]
    assert scene.ran == ["c"]


@pytest.mark.parametrize("sent", [0, 1], ids=["dead letter", "end"])
def test_a_message_that_could_not_be_dead_lettered_stays_with_the_rest(sent: int, scene: StarterScene) -> None:
    """Also if only its end could not be sent, which no row contains: SQS drops the dead-letter message of a repeat."""
    acts = [lambda _: None, _fail]
    before_write(scene.sqs, *acts[1 - sent :], operation="SendMessage")
    assert scene.receive(asked("a"), "{", asked("c")) == ["m2", "m3"]
    assert (scene.ran, scene.notes.refused, len(scene.aws.sent_to("dead.fifo"))) == (["a"], [], sent)
    assert scene.receive(asked("a"), "{") == []
    assert [each["refused"]["message_id"] for each in scene.to_publish] == ["m2"]


def test_a_request_that_is_too_large_is_rejected(scene: StarterScene) -> None:
    large = asked("large", task_token="token", arguments={"--text": "x" * MAX_BODY_BYTES})
    assert scene.receive(large, asked("a")) == []
    (rejected, _) = scene.notes.acceptances
    assert isinstance(rejected, Rejected)
    assert (rejected.code, scene.states) == ("TooLarge", {"large": "REJECTED", "a": "STARTED"})
    assert ("65,536" in rejected.reason, scene.to_publish) == (True, [named(rejected.execution)])


def test_a_reused_id_is_rejected_and_only_its_own_end_published(scene: StarterScene) -> None:
    scene.accept(Request("p", {"--day": "1"}, "a", task_token="one"), "another")
    scene.receive(asked("a", arguments={"--day": "2"}, task_token="one"))
    (rejected,) = scene.notes.acceptances
    assert scene.to_publish == [named(rejected.execution)]
    assert rejected.execution != name_of("a", token="one")


def test_all_ends_of_a_process_that_does_not_exist_are_published(scene: StarterScene) -> None:
    """No run of the janitor visits it."""
    scene.receive(asked("a", "gone"))
    assert (scene.states, scene.to_publish) == ({"a": "REJECTED"}, [{"process": "gone"}])
    assert scene.ring(Bell("gone")) == []
    assert scene.to_publish == [{"process": "gone"}] * 2


@pytest.mark.parametrize(
    ("fields", "reads"),
    [({}, 0), ({"when_busy": "skip"}, 1), ({"start_before": "2027-01-15T08:10:00Z"}, 1)],
)
def test_the_index_of_deadlines_is_read_only_for_a_batch_that_may_need_it(
    fields: Item, reads: int, scene: StarterScene
) -> None:
    indexes = passed_values(scene.dynamodb, "Query", "IndexName")
    scene.receive(asked("a", **fields), asked("b"))
    assert indexes.count("deadline") == reads


def test_a_failed_dispatch_is_repeated_by_a_ring(scene: StarterScene) -> None:
    lose_answer(scene.stepfunctions, "StartExecution")
    assert scene.receive(asked("a")) == []
    delay = AGE_SECONDS + 1 + CLOCK_SKEW_SECONDS
    assert scene.rings == [({"process": "p"}, delay)]
    assert scene.notes.failures == [("A dispatch has failed; it is repeated", "StartsUncertain")]
    scene.pass_time(delay)
    assert scene.ring(Bell("p")) == []
    assert scene.states == {"a": "STARTED"}


def test_without_a_dispatch_and_a_ring_the_messages_of_the_process_come_again(scene: StarterScene) -> None:
    def fail_for_p(params: Item, **_: Any) -> None:
        if params["Key"]["process_name"] == {"S": "p"}:
            raise RuntimeError("no read")

    scene.dynamodb.meta.events.register("before-parameter-build.dynamodb.GetItem", fail_for_p)
    refuse(scene.sqs, "SendMessage", "InternalError")
    assert scene.receive(asked("a"), asked("b", "q"), asked("c")) == ["m1", "m3"]
    assert (scene.states, scene.ran) == ({"a": "QUEUED", "b": "STARTED", "c": "QUEUED"}, ["b"])


def test_what_a_failed_dispatch_has_started_is_reported(scene: StarterScene) -> None:
    scene.change(slot_limit=number(2))
    scene.aws.start_errors[name_of("b")] = "InternalServerError"
    scene.receive(asked("a"), asked("b"))
    assert scene.started == [name_of("a")]


def test_requests_of_a_malformed_process_wait_without_their_messages(scene: StarterScene) -> None:
    scene.change(slot_limit={"S": "1"})
    assert scene.receive(asked("a")) == []
    assert (scene.states, scene.rings) == ({"a": "QUEUED"}, [])
    assert scene.notes.failures == [("A process's item is malformed; its requests wait", "MalformedProcess")]
    assert scene.ring(Bell("p")) == []


def test_a_dispatch_of_received_messages_is_short_and_a_ring_continues_it(scene: StarterScene) -> None:
    """So that no message waits for long behind those of a large queue."""
    scene.change(slot_limit=number(3 * MAX_STARTS))
    scene.stepfunctions.meta.events.register(
        "before-call.stepfunctions.StartExecution", lambda **_: scene.pass_time(DISPATCH_SECONDS / MAX_STARTS)
    )
    scene.queue(*(f"{at:03}" for at in range(2 * MAX_STARTS)))
    scene.receive(asked("z"))
    scene.receive(asked("z"))
    assert (len(scene.ran), scene.rings) == (2 * MAX_STARTS, [({"process": "p", "count": 1}, 0)] * 2)
    scene.ring(Bell("p", count=1))
    assert len(scene.ran) == 2 * MAX_STARTS + 1


def test_an_end_that_could_not_be_named_does_not_bring_its_message_back(scene: StarterScene) -> None:
    scene.hold({"p-x": running()})
    refuse(scene.sqs, "SendMessage", "InternalError")
    assert scene.receive(asked("a", when_busy="skip")) == []
    assert (scene.states, scene.row(name_of())["open"]) == ({"a": "SKIPPED"}, number(-NOW))
    assert scene.notes.failures == [("Could not let ends of requests be published", "ClientError")]


# DispatchQueue


def test_the_rings_of_a_process_are_one_dispatch_of_the_longest_chain(scene: StarterScene) -> None:
    scene.queue("a")
    assert scene.ring(Bell("p", count=3), Bell("q"), Bell("p", count=5), Bell("p")) == []
    assert [process for process, _ in scene.notes.dispatches] == ["p", "q"]
    assert [bell.count for bell in scene.notes.bells] == [3, 0, 5, 0]
    assert scene.ran == ["a"]
    scene.left = RESERVE_SECONDS - 1
    scene.ring(Bell("p", count=3), Bell("p", count=5))
    assert scene.rings == [({"process": "p", "count": 6}, 0)]


def test_timed_rings_come_after_the_others_and_wait_for_the_latest(scene: StarterScene) -> None:
    scene.queue("a")
    scene.hold({"p-x": running()})
    scene.queue("skips", when_busy="skip")
    scene.ring(Bell("p", at=NOW + 0.2), Bell("p"), Bell("q", at=NOW), Bell("p", at=NOW + 0.7), Bell("q"))
    assert [process for process, _ in scene.notes.dispatches] == ["p", "q", "p", "q"]
    assert scene.slept == [pytest.approx(0.7), 0.0]
    assert scene.states == {"a": "QUEUED", "skips": "SKIPPED"}


def test_a_ring_that_continues_a_dispatch_does_not_narrow_another_one(scene: StarterScene) -> None:
    """It knows of no change in the part that was passed."""
    scene.queue("a", key="acme")
    rest = Bell("p", passed=("", behind_key("1", "acme")))
    assert scene.ring(rest, rest) == []
    assert (len(scene.notes.dispatches), scene.ran) == (1, [])
    scene.ring(rest, Bell("p"))
    assert (len(scene.notes.dispatches), scene.ran) == (3, ["a"])


@pytest.mark.parametrize("rounds", [1, 20])
def test_a_heavy_request_in_a_part_that_was_passed_still_keeps_back_its_key(
    rounds: int, scene: StarterScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MAX_READS", 1)
    monkeypatch.setattr(dispatch, "MAX_ROUNDS", rounds)
    scene.change(slot_limit=number(99), key_limit=number(2))
    scene.hold({f"p-{key}": running() | {"key": {"S": key}} for key in ("acme", *"bcdefg")})
    scene.queue("heavy", priority="high", weight=2, key="acme")
    for key in "bcdefg":
        scene.queue(*(f"{key}{at}" for at in range(20)), priority="high", weight=2, key=key)
    scene.queue("light", key="acme")
    scene.queue("free", key="zoo")
    scene.dispatch()
    for at in range(9):
        scene.ring(*(json.dumps(body) for body, _ in scene.rings[at : at + 1]))
    assert scene.ran == ["free"]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        '"p"',
        "{}",
        *(f'{{"process": "p", {odd}}}' for odd in ('"at": "soon"', '"passed": ["1"]')),
        "[" * 20_000,
    ],
)
def test_a_message_that_is_no_doorbell_is_deleted(body: str, scene: StarterScene) -> None:
    scene.queue("a")
    assert scene.ring(body, Bell("p")) == []
    assert scene.notes.failures == [("Deleted a message that is no doorbell", "ValueError")]
    assert scene.ran == ["a"]


@pytest.mark.parametrize(
    ("bell", "body"),
    [
        (Bell("p"), '{"process": "p"}'),
        (Bell("p", 1.5, 2), '{"process": "p", "at": 1.5, "count": 2}'),
        (Bell("p", passed=("#", "1~", "a")), '{"process": "p", "passed": ["#", "1~", "a"]}'),
        # SQS takes the last character only escaped (SQS API Reference, SendMessage).
        (Bell("p", passed=("", behind_key("1", "\uffff"))), r'{"process": "p", "passed": ["", "1#/\uffff\t~"]}'),
    ],
)
def test_a_doorbell_states_only_what_is_known_and_is_read_as_it_was_sent(bell: Bell, body: str) -> None:
    assert (bell.to_json(), parse_bell(body)) == (body, bell)
