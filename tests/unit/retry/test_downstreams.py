"""Asking for an attempt and reporting its answer: names, which errors count, and errors of DynamoDB itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from slotkeeper.retry import Poison, Retryable
from slotkeeper.retry.downstream.downstreams import (
    DEFAULT,
    MOST_CARRIED,
    UNWATCHED,
    Admission,
    Downstreams,
    DownstreamTable,
    MalformedHealth,
    Rejection,
    TooManyWriters,
    answer_of,
    check_name,
    name_of,
    names,
)
from slotkeeper.retry.downstream.health import Answer, DownstreamSettings, Health, State
from slotkeeper.retry.errors import Failure
from slotkeeper.retry.policy import BUILT_IN, Policy
from tests.simulation.account.boundary import Calls

NOW, LEASE, MOST = 1_800_000_000.0, 125.0, 3
TABLE = "downstreams"
DOWN = Failure.of(ConnectionError("down"))


class Scene:
    """Downstreams with a test's clock.

    `trouble` is raised instead of each later change of the table, or after it if the answer `is_lost`.
    """

    def __init__(self, dynamodb: Any) -> None:
        self.now = NOW
        self.dynamodb = dynamodb
        self.trouble: Exception | None = None
        self.is_lost = False
        self.unreported: list[str] = []
        self.seen: list[tuple[str, State, int | None]] = []
        self.table = DownstreamTable(dynamodb, TABLE)
        self.change = self.table.change
        self.table.change = self._change  # type: ignore[method-assign]
        self.downstreams = Downstreams(
            self.table,
            most=MOST,
            on_health=lambda name, _before, after, callers: self.seen.append((name, after.breaker.state, callers)),
            on_unreported=self.unreported.append,
            clock=lambda: self.now,
        )

    def _change(self, *arguments: Any) -> Any:
        changed = None if self.trouble and not self.is_lost else self.change(*arguments)
        if self.trouble:
            raise self.trouble
        return changed

    def ask(self, policy: Policy = BUILT_IN, name: str = DEFAULT) -> Admission | Rejection:
        return self.downstreams.ask(name, policy, is_retry=False, lease=LEASE)

    def admitted(self, policy: Policy = BUILT_IN, name: str = DEFAULT) -> Admission:
        admission = self.ask(policy, name)
        assert isinstance(admission, Admission)
        return admission

    def health(self, name: str = DEFAULT) -> Health:
        return self.table.read(name)


@pytest.fixture
def scene(dynamodb: Any) -> Scene:
    return Scene(dynamodb)


def test_a_failure_counts_after_a_success_only_and_an_error_of_the_work_always(scene: Scene) -> None:
    with scene.admitted() as admission:
        admission.succeeded(1.0)
    counts = []
    for failure in (DOWN, DOWN, Failure.of(KeyError("a bug"))):
        with scene.admitted() as admission:
            counts.append(admission.failed(failure, 1.0))
    assert counts == [True, False, True]
    assert scene.health().breaker.failures == 2


def test_a_refusal_names_downstream_reason_and_time_and_writes_nothing(scene: Scene) -> None:
    policy = Policy.from_document({"downstream": {"breaker": {"failure_threshold": 1, "recovery_seconds": 20}}})
    with scene.admitted(policy, "mail") as admission:
        admission.failed(DOWN, 1.0)
    before = scene.health("mail")
    scene.now += 0.1
    held = scene.ask(policy, "mail")
    assert isinstance(held, Rejection)
    assert (held.name, held.reason, held.not_before) == ("mail", "breaker", before.breaker.probe_at)
    assert scene.health("mail") == before
    assert scene.seen[-1] == ("mail", State.OPEN, MOST)


TROUBLE = [
    ClientError({"Error": {"Code": "ThrottlingException"}}, "PutItem"),
    ReadTimeoutError(endpoint_url="dynamodb"),
    MalformedHealth("malformed"),
    TooManyWriters("too many"),
]


def test_a_failure_that_could_not_be_reported_counts_without_a_breaker(scene: Scene) -> None:
    with scene.admitted(Policy.from_document({"downstream": {"breaker": {"enabled": False}}})) as admission:
        scene.trouble = TooManyWriters("too many")
        assert admission.failed(DOWN, 1.0)


@pytest.mark.parametrize("trouble", TROUBLE, ids=lambda trouble: type(trouble).__name__)
def test_reporting_never_raises_and_returns_the_reason_to_the_worker(scene: Scene, trouble: Exception) -> None:
    def reported(act: Callable[[Admission], Any]) -> Any:
        scene.trouble = None
        with scene.admitted() as admission:
            scene.trouble = trouble
            return act(admission)

    answers = [
        reported(lambda admission: admission.succeeded(1.0)),
        reported(lambda admission: admission.failed(DOWN, 1.0)),
        reported(lambda _admission: None),
    ]
    assert answers == [None, False, None]  # the failure may be a second one of an outage, so it does not count
    assert scene.unreported == [f"{type(trouble).__name__}: {trouble}"] * 3
    if not isinstance(trouble, TooManyWriters):
        with pytest.raises(type(trouble)):
            scene.ask()


# An outcome that could not be reported.

LOST = ReadTimeoutError(endpoint_url="dynamodb")
OPENS_AT_ONE = Policy.from_document({"downstream": {"breaker": {"failure_threshold": 1, "window_calls": 1}}})
RECOVERY = 30


def unreported(
    scene: Scene, act: Callable[[Admission], Any], trouble: Exception = LOST, *, policy: Policy = BUILT_IN
) -> None:
    """An attempt whose report is not answered."""
    with scene.admitted(policy) as admission:
        scene.trouble = trouble
        act(admission)
    scene.trouble = None


def fails_now(admission: Admission) -> None:
    admission.failed(DOWN, 1.0)


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("trouble", TROUBLE, ids=lambda trouble: type(trouble).__name__)
def test_an_outcome_that_was_not_reported_is_part_of_the_next_write_once(
    scene: Scene, trouble: Exception, is_lost: bool
) -> None:
    with scene.admitted() as admission:
        admission.succeeded(1.0)
    scene.is_lost = is_lost
    unreported(scene, fails_now, trouble)
    calls = Calls(scene.dynamodb)
    for _ in range(3):
        with scene.admitted() as admission:
            health = scene.health()
            assert (len(health.permits), health.breaker.failures, health.breaker.healthy) == (1, 1, False)
            admission.failed(Failure.of(KeyError("a bug")), 1.0)
    assert calls.made.count("PutItem") == 6  # as with a report that was answered


@pytest.mark.parametrize("policy", [BUILT_IN, OPENS_AT_ONE], ids=["closed", "half-open"])
def test_a_permit_that_was_written_without_an_answer_is_given_back(scene: Scene, policy: Policy) -> None:
    if policy is OPENS_AT_ONE:
        with scene.admitted(policy) as admission:
            admission.failed(DOWN, 1.0)
        scene.now += RECOVERY
    scene.trouble, scene.is_lost = LOST, True
    with pytest.raises(ReadTimeoutError):
        scene.ask(policy)
    scene.trouble = None
    with scene.admitted(policy):
        assert len(scene.health().permits) == 1


def test_a_success_that_is_reported_late_does_not_come_after_a_failure_since(scene: Scene) -> None:
    with scene.admitted() as admission:
        admission.succeeded(1.0)
    unreported(scene, lambda admission: admission.succeeded(1.0))
    scene.now += 1
    other = Scene(scene.dynamodb)
    other.now = scene.now
    with other.admitted() as admission:
        admission.failed(DOWN, 1.0)
    scene.now += 10
    with scene.admitted():
        assert not scene.health().breaker.healthy


def test_the_newest_outcomes_within_their_leases_are_carried_by_name(scene: Scene) -> None:
    def lose(number: int) -> None:
        scene.trouble, scene.is_lost = LOST, True
        with pytest.raises(ReadTimeoutError):
            scene.ask(name=f"n{number}")
        scene.trouble = None

    for number in range(MOST_CARRIED + 1):
        lose(number)
    for number, permits in ((0, 2), (1, 1), (MOST_CARRIED, 1)):
        with scene.admitted(name=f"n{number}"):
            assert len(scene.health(f"n{number}").permits) == permits
    scene.now += LEASE
    lose(0)
    assert len(scene.downstreams._carried) == 1


def test_a_message_comes_back_soon_if_too_many_containers_ask(scene: Scene) -> None:
    scene.trouble = TooManyWriters("too many")
    held = scene.ask()
    assert isinstance(held, Rejection)
    assert (held.reason, held.not_before) == ("too many containers ask at the same time", scene.now)


class Busy(Retryable):
    pass


class RateLimited(Busy):
    pass


def aws_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}}, "Call")


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (Retryable("not now"), Answer.FAILED),
        (Busy("not now"), Answer.FAILED),
        (TimeoutError("30 s"), Answer.FAILED),
        (ReadTimeoutError(endpoint_url="x"), Answer.FAILED),
        (aws_error("InternalServerError"), Answer.FAILED),
        (RateLimited("later"), Answer.THROTTLED),
        (aws_error("ThrottlingException"), Answer.THROTTLED),
        (KeyError("a bug"), Answer.UNKNOWN),
        (Poison("no such object"), Answer.UNKNOWN),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_shows_a_failure_throttling_or_nothing(error: Exception, answer: Answer) -> None:
    assert answer_of(Failure.of(error), DownstreamSettings()) == answer


def test_the_policys_errors_replace_the_built_in_ones_and_poison_shows_nothing() -> None:
    settings = DownstreamSettings().with_document(
        {"breaker": {"errors": ["KeyError", "Poison"]}, "concurrency": {"errors": []}}
    )
    answers = [
        answer_of(Failure.of(error), settings) for error in (KeyError(), RateLimited(), TimeoutError(), Poison("x"))
    ]
    assert answers == [Answer.FAILED, Answer.UNKNOWN, Answer.UNKNOWN, Answer.UNKNOWN]


def fails(_request: Any) -> str:
    raise KeyError("no such field")


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ("mail", "mail"),
        (lambda request: request["to"], "billing"),
        (fails, DEFAULT),
        (lambda _request: None, DEFAULT),
        (lambda _request: "", DEFAULT),
        (lambda _request: "a b", DEFAULT),
        (lambda _request: "mail\n", DEFAULT),
        (lambda _request: "x" * 65, DEFAULT),
    ],
)
def test_a_request_without_a_valid_name_belongs_to_the_default_downstream(named: Any, name: str) -> None:
    assert name_of(named, {"to": "billing"}) == name


def test_a_name_has_at_most_64_characters_of_a_fixed_set() -> None:
    assert [check_name(name) for name in ("a", "A.b_c-9", "x" * 64)] == ["a", "A.b_c-9", "x" * 64]
    for name in ("", "a b", "é", "x" * 65, "a/b"):
        with pytest.raises(ValueError, match=r"1 to 64 .*, got"):
            check_name(name)


def test_the_names_are_those_of_policy_and_table_and_the_default_one() -> None:
    policy = Policy.from_document({"downstreams": {"mail": {}}})
    assert names(policy, {"billing": Health(), "mail": Health()}) == ["billing", DEFAULT, "mail"]


def test_a_worker_that_does_not_watch_its_downstream_counts_every_failure() -> None:
    with UNWATCHED as admission:
        assert admission.failed(DOWN, 1.0) is True
    assert UNWATCHED.death_counts
