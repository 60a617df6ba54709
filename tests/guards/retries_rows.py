"""Rows of retries: the worker, its ledger, its schedules, and the state of its downstreams."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.retry import consumer, delivery, events, ledger, plan
from slotkeeper.retry.consumer import Consumer
from slotkeeper.retry.delivery import DeadLetterQueue, PlannedDelivery, RetryQueue
from slotkeeper.retry.downstream import rules
from slotkeeper.retry.downstream.downstreams import Downstreams
from slotkeeper.retry.downstream.health import Breaker, Budget, Health, State
from slotkeeper.retry.ledger import Ledger
from slotkeeper.retry.operations import RetryOperations
from slotkeeper.retry.policy import BUILT_IN, Policy, PolicyParameter, PolicyUnavailable
from slotkeeper.retry.worker import RetryingWorker
from tests.guards.edits import code
from tests.guards.rows import Row, World, ignoring_errors
from tests.simulation import downstream_world, retry_world
from tests.simulation.downstream_world import DownstreamWorld, watching_policy
from tests.simulation.retry_world import RetryWorld
from tests.simulation.world_runs import Remove, all_of, replaced, set_to
from tests.template.watched import ALARMS

Patch = pytest.MonkeyPatch
RETRY = "tests/unit/retry"
ONCE, POISON = '{"fails": 1}', '{"poison": "no such thing"}'
BY_SCHEDULER = '{"fails": 1, "retry_after": 1980}'


def watching(alarm: str, metric: str) -> Remove:
    """An alarm on another metric."""
    assert ALARMS[alarm]["MetricName"] != metric
    return lambda patch: patch.setitem(ALARMS[alarm], "MetricName", metric)


def retries(*payloads: str, **given: Any) -> Callable[[], RetryWorld]:
    """A world of a request with these payloads. See retry_world.Plan."""
    return lambda: RetryWorld(retry_world.Plan(tuple(("a", payload) for payload in payloads), **given))


def downstream(ids: str, policy: Policy | None = None, **given: Any) -> Callable[[], DownstreamWorld]:
    """A world of requests with these ids, of one character each. See downstream_world.Plan."""
    more = {"policy": policy} if policy else {}
    requests = tuple((each, "{}") for each in ids)
    return lambda: DownstreamWorld(downstream_world.Plan(requests, **more, **given))


# The worker and its ledger ------------------------------------------------------------------------------------------


def a_live_lease_has_ended(patch: Patch) -> None:
    parse = ledger._parse
    patch.setattr(ledger, "_parse", lambda *arguments: dataclasses.replace(parse(*arguments), lease_until=0.0))


def a_dead_attempt_begins_again(patch: Patch) -> None:
    take_over = Ledger._take_over

    def alive(self: Any, *arguments: Any) -> Any:
        claim = take_over(self, *arguments)
        return dataclasses.replace(claim, died=False) if isinstance(claim, ledger.Claimed) else claim

    patch.setattr(Ledger, "_take_over", alive)


def forgets_the_history(patch: Patch) -> None:
    send = DeadLetterQueue.send
    patch.setattr(DeadLetterQueue, "send", lambda *arguments: send(*arguments[:-1], ()))


def decides_by_the_built_in_policy(patch: Patch) -> None:
    latest = PolicyParameter.latest

    def falls_back(self: Any) -> Policy:
        try:
            return latest(self)
        except PolicyUnavailable:
            return BUILT_IN

    patch.setattr(PolicyParameter, "latest", falls_back)


def takes_the_message_id(patch: Patch) -> None:
    consume = Consumer.consume

    def renamed(self: Any, record: Any, *given: Any) -> Any:
        parse = consumer.parse_message
        with Patch.context() as inner:
            inner.setattr(consumer, "parse_message", lambda body: replace(parse(body), request_id=record.message_id))
            return consume(self, record, *given)

    patch.setattr(Consumer, "consume", renamed)


RECORDED = "history = self.ledger.record(message, claim, vars(plan), failure.reason, failure.type)"
RETURNED = "return self._carry_out(message, claim, plan, history, cause)"
NOTED = """
noted = ({"attempt": message.attempt, "at": str(claim.started_at), "error": failure.reason},)
outcome = self._carry_out(message, claim, plan, (*claim.history, *noted), cause)
self.ledger.record(message, claim, vars(plan), failure.reason, failure.type)
return outcome
"""
ANY_MINE = "(claim = :mine OR claim <> :mine)"
WORKER = [
    Row(
        "f21-what-does-not-count-counts",
        "A rate-limited downstream uses up the request's attempts, and a healthy request is dead-lettered.",
        code(plan.plan_retry, "made - history.uncounted - (not counts)", "made"),
        f"{RETRY}/test_retry_plan.py::test_f21_uncounted_attempts_do_not_use_up_the_limit",
    ),
    Row(
        "f22-poison-is-tried-again",
        "An invalid message is retried forever and delays the others (near/queryapi #75 and many).",
        code(plan.plan_retry, "error.final", "error.final and len(history.attempts) >= MAX_TOTAL_ATTEMPTS"),
        f"{RETRY}/test_retry_plan.py::test_f22_poison_is_dead_lettered_at_its_first_attempt",
    ),
    Row(
        "f24-a-live-lease-is-taken-over",
        "A redelivery takes an attempt over while its worker works (IDP #904, #989).",
        a_live_lease_has_ended,
        World(retries(ONCE, ONCE), 0, "R2"),
    ),
    Row(
        "f24-a-dead-attempt-begins-again",
        "A worker takes over an attempt whose worker died, and does its work a second time.",
        a_dead_attempt_begins_again,
        World(retries(ONCE), 1, "R2"),
    ),
    Row(
        "f24-a-lost-claim-settles",
        "A worker whose claim was taken over settles, and succeeded work is claimed. Either guard alone prevents it.",
        all_of(
            replaced(ledger, "HELD_CONDITION", "claim = :mine", ANY_MINE),
            replaced(ledger, "CLAIM_CONDITION", "#status <> :succeeded AND ", ""),
            replaced(ledger, "CLAIM_CONDITION", "lease_until < :clock", "lease_until <> :clock"),
        ),
        World(retries("{}"), 1, "R2"),
    ),
    Row(
        "f25-recorded-after-it-is-carried-out",
        "The retry is scheduled before the decision is recorded: a later delivery decides differently.",
        code(Consumer._decide, f"{RECORDED}\n{RETURNED}", NOTED),
        World(retries(ONCE), 1, "R2"),
    ),
    Row(
        "f25-deleted-before-it-is-scheduled",
        "The message is deleted although its retry could not be scheduled, and the request is lost.",
        ignoring_errors(RetryQueue, "schedule", PlannedDelivery("delay", 0)),
        World(retries(ONCE), 1, "R1"),
    ),
    Row(
        "f25-deleted-after-any-exception",
        "The worker reports success to SQS although it has failed.",
        ignoring_errors(RetryingWorker, "_consume"),
        World(retries(ONCE), 1, "R1"),
    ),
    Row(
        "f25-a-schedule-of-another-name",
        "A schedule has a random name, so a retry that is scheduled again after a lost answer is delivered twice.",
        set_to(delivery, "schedule_name", lambda *_: uuid.uuid4().hex),
        f"{RETRY}/test_retry_delivery.py::test_f25_a_retry_scheduled_twice_is_one_schedule",
    ),
    Row(
        "f25-any-conflict-is-a-schedule",
        "Any ConflictException of Scheduler is treated as an existing schedule, and no retry follows (R1).",
        code(RetryQueue._is_scheduled, "self.scheduled_body(message) is not None", "True"),
        f"{RETRY}/test_retry_delivery.py::test_f25_a_conflict_without_a_readable_schedule_falls_back_to_hops",
    ),
    Row(
        "f26-the-key-from-the-message-id",
        "The idempotency key is the SQS message id. A redriven message has a new one, so its effect is repeated.",
        takes_the_message_id,
        f"{RETRY}/test_consumer_repeats.py::test_f26_a_redriven_message_is_the_next_attempt_and_its_copy_has_no_effect",
        also=("F24",),
    ),
    Row(
        "f28-an-alarm-that-can-never-fire",
        "The alarm on the worker's loop watches RecursiveInvocationsDropped, never written for an Allow function.",
        watching("WorkHopsAlarm", "RecursiveInvocationsDropped"),
        "tests/template/test_worker_template.py::test_f28_an_alarm_on_its_length_watches_an_allowed_loop_instead",
    ),
    Row(
        "r1-run-now-deletes-the-schedule-first",
        "A run-now deletes the schedule first, and dies before it sends the message.",
        code(
            RetryOperations.run_now,
            "self._queue.send_now(message)\nself._queue.delete_schedule(message)",
            "self._queue.delete_schedule(message)\nself._queue.send_now(message)",
        ),
        World(retries(BY_SCHEDULER, commands=("run_now",)), 1, "R1"),
    ),
    Row(
        "r1-a-cancel-is-settled-before-its-dead-letter",
        "A cancelled retry is settled immediately and its message is dropped when it is received (R4).",
        replaced(ledger, "CANCEL_UPDATE", "#status = :failed", "#status = :dead_lettered"),
        World(retries(ONCE, commands=("cancel",)), 0, "R1"),
    ),
    Row(
        "r3-decided-by-a-policy-that-was-not-read",
        "A new container that cannot read the policy decides by the built-in one.",
        decides_by_the_built_in_policy,
        World(retries('{"fails": 9}', reads_policy=True), 1, "R3"),
    ),
    Row(
        "r4-a-dead-letter-without-its-history",
        "A dead-letter message does not state why its attempts failed.",
        forgets_the_history,
        World(retries(POISON), 0, "R4"),
    ),
    Row(
        "event-lost-with-the-worker",
        "The worker dies between ledger and event. The redelivery finds a settled request, and the event is lost.",
        code(events.publish_if_succeeded, "(status, attempts) == (SUCCEEDED, message.attempt) and again", "False"),
        "tests/unit/test_worker_events.py::test_a_worker_that_dies_between_ledger_and_event_publishes_at_the_redelivery",
    ),
]

# The state of a downstream ------------------------------------------------------------------------------------------


def _asked_with(change: Callable[[Health], Health]) -> Remove:
    def remove(patch: Patch) -> None:
        ask = rules.ask
        patch.setattr(rules, "ask", lambda health, *given: ask(change(health), *given))

    return remove


def _breaker(change: Callable[[Breaker], Breaker]) -> Remove:
    return _asked_with(lambda health: replace(health, breaker=change(health.breaker)))


def counts_what_was_not_reported(patch: Patch) -> None:
    report = Downstreams._report

    def counts(self: Downstreams, *given: Any) -> bool:
        unreported: list[str] = []
        self.on_unreported = unreported.append
        return report(self, *given) or bool(unreported)

    patch.setattr(Downstreams, "_report", counts)


DOWN = (0, 90)
BREAKER = watching_policy(limited=False)
DOWNSTREAMS = [
    Row(
        "r5-a-call-that-hangs-is-no-failure",
        "A permit that ends without an outcome is no failure, so a downstream that keeps each call never opens.",
        code(rules.current, "after = _failed(after, settings, until)"),
        World(downstream("a", fault_kinds=("die after",)), 1, "R5"),
    ),
    Row(
        "r5-a-probe-passes-the-operators-open",
        "A breaker that an operator opened begins a probe when its recovery time has passed, and closes.",
        code(rules._asked, "breaker.forced", "False"),
        World(downstream("a", commands=("open",)), 0, "R5"),
    ),
    Row(
        "r5-an-open-breaker-permits",
        "An outage is not noticed by the next attempts.",
        _breaker(lambda breaker: breaker if breaker.forced else replace(breaker, state=State.CLOSED)),
        World(downstream("ab", BREAKER, limited=False, down=DOWN), 0, "R5"),
    ),
    Row(
        "r5-a-lease-without-the-clock-skew",
        "A container whose clock is ahead ends a probe that is under way.",
        set_to(consumer, "CLOCK_SKEW_SECONDS", 0.0),
        World(
            downstream(
                "ab", BREAKER, limited=False, down=DOWN, step=119, skews=(-5, 0), fault_kinds=("beyond its lease",)
            ),
            1,
            "R5",
        ),
    ),
    Row(
        "r5-an-outcome-of-the-past-changes-the-state",
        "The outcome of an attempt that began before the breaker opened ends another attempt's probe.",
        code(rules.report, "permit.epoch != present.breaker.epoch", "False"),
        World(downstream("ab", BREAKER, limited=False, down=DOWN, fault_kinds=("beyond its lease",)), 1, "R5"),
    ),
    Row(
        "r6-the-limit-counts-no-permits",
        "More callers than the limit begin.",
        _asked_with(lambda health: replace(health, permits={})),
        World(downstream("ab", most=1), 0, "R6"),
    ),
    Row(
        "r6-the-budget-counts-no-retries",
        "Failed retries are not counted, so an incident becomes a retry storm.",
        _asked_with(lambda health: replace(health, budget=Budget())),
        World(downstream("ab", watching_policy(9), down=DOWN), 0, "R6"),
    ),
    Row(
        "r6-an-outcome-that-was-not-reported-is-forgotten",
        "A report that DynamoDB refuses is forgotten, and its permit stays for two minutes.",
        set_to(Downstreams, "_carry", lambda *_: None),
        World(downstream("a", fault_kinds=("throttle",)), 1, "R6"),
    ),
    Row(
        "f21-an-outage-uses-up-the-attempts",
        "Every failure of an outage counts, and requests that the downstream accepts afterwards are dead-lettered.",
        code(Consumer._attempt, "failure = replace(failure, counts=False)"),
        World(downstream("a", down=DOWN), 0, "R7"),
    ),
    Row(
        "r7-a-failure-that-was-not-reported-counts",
        "Downstream and table are down, and the failure uses up an attempt.",
        counts_what_was_not_reported,
        World(
            downstream(
                "ab",
                watching_policy(9, limited=False),
                limited=False,
                workers=1,
                down=(60, 61),
                sudden=True,
                fault_kinds=("unsent",),
            ),
            1,
            "R7",
        ),
    ),
    Row(
        "r7-a-message-is-held-back-at-any-age",
        "A message waits for its downstream longer than its policy's maximum age (R3).",
        code(Consumer._ask, "age > policy.max_age", "False"),
        World(downstream("a", commands=("open",)), 0, "R7"),
    ),
    Row(
        "r1-deleted-before-its-copy-is-sent",
        "A message that waits is deleted although its copy could not be sent.",
        ignoring_errors(RetryQueue, "send_copy"),
        World(downstream("a", commands=("open",), receives=898, fault_kinds=("unsent",)), 1, "R1"),
    ),
]

ROWS = WORKER + DOWNSTREAMS
