"""Without one of its protections, a small world of a watched downstream breaks the guarantee."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.aws.dynamodb import Table
from slotkeeper.retry import consumer, deferral
from slotkeeper.retry.consumer import Consumer
from slotkeeper.retry.deferral import WaitsForDownstream
from slotkeeper.retry.delivery import RetryQueue
from slotkeeper.retry.downstream import rules
from slotkeeper.retry.downstream.downstreams import DEFAULT, Admission, Downstreams
from slotkeeper.retry.downstream.health import Breaker, Budget, Health, State
from slotkeeper.retry.ledger import Ledger
from slotkeeper.retry.policy import Policy
from tests.simulation import downstream_world
from tests.simulation.downstream_world import DownstreamWorld, Plan, watching_policy
from tests.simulation.world_runs import first_broken, first_violation

Patch = pytest.MonkeyPatch

ONE = (("a", "{}"),)
TWO = (*ONE, ("b", "{}"))
DOWN = (0, 90)
FROZEN = ("beyond its lease",)
BREAKER_ONLY = watching_policy(limited=False)
UNREPORTED = Plan(
    TWO,
    watching_policy(9, limited=False),
    limited=False,
    workers=1,
    down=(60, 61),
    sudden=True,
    fault_kinds=("unsent",),
)


def r5_state_is_written_unconditionally(patch: Patch) -> None:
    put = Table.put

    def unconditional(self: Any, item: Any, condition: str, values: Any = None) -> Any:
        return put(self, item, "attribute_exists(downstream) OR attribute_not_exists(downstream)")

    patch.setattr(Table, "put", unconditional)


def _changed_ask(patch: Patch, change: Callable[[Health], Health]) -> None:
    ask = rules.ask
    patch.setattr(rules, "ask", lambda health, *given: ask(change(health), *given))


def _changed_breaker(patch: Patch, change: Callable[[Breaker], Breaker]) -> None:
    _changed_ask(patch, lambda health: replace(health, breaker=change(health.breaker)))


def r5_a_call_that_hangs_is_no_failure(patch: Patch) -> None:
    current = rules.current

    def drops(health: Health, settings: Any, now: float) -> Health:
        kept = {code: held for code, held in health.permits.items() if held[0] > now}
        return current(replace(health, permits=kept), settings, now)

    patch.setattr(rules, "current", drops)


def r5_all_requests_have_one_downstream(patch: Patch) -> None:
    patch.setattr(consumer, "name_of", lambda *_: DEFAULT)


def _with_a_probe_due_in(state: State) -> Callable[[Breaker], Breaker]:
    return lambda breaker: replace(breaker, probe_at=0.0) if breaker.state == state else breaker


def r5_every_message_is_a_probe(patch: Patch) -> None:
    _changed_breaker(patch, _with_a_probe_due_in(State.HALF_OPEN))


def r5_probes_before_they_are_due(patch: Patch) -> None:
    _changed_breaker(patch, _with_a_probe_due_in(State.OPEN))


def r5_a_forced_breaker_half_opens(patch: Patch) -> None:
    _changed_breaker(patch, lambda breaker: replace(breaker, forced=False))


def r5_an_open_breaker_permits(patch: Patch) -> None:
    _changed_breaker(patch, lambda breaker: breaker if breaker.forced else replace(breaker, state=State.CLOSED))


def r5_a_lease_without_clock_skew(patch: Patch) -> None:
    patch.setattr(consumer, "CLOCK_SKEW_SECONDS", 0.0)


def r5_an_old_outcome_closes(patch: Patch) -> None:
    report = rules.report

    def of_any_epoch(health: Any, settings: Any, permit: Any, *given: Any) -> Any:
        return report(health, settings, replace(permit, epoch=health.breaker.epoch), *given)

    patch.setattr(rules, "report", of_any_epoch)


def r5_a_message_that_is_held_back_claims_its_attempt(patch: Patch) -> None:
    ask = Consumer._ask

    def claims(self: Any, delivery: Any) -> Any:
        try:
            return ask(self, delivery)
        except WaitsForDownstream:
            token, name = delivery.record.receipt_handle, delivery.downstream
            self._ledger.claim(delivery.message, token, delivery.now, 0.0, name)
            raise

    patch.setattr(Consumer, "_ask", claims)


def r6_the_limit_counts_no_permits(patch: Patch) -> None:
    _changed_ask(patch, lambda health: replace(health, permits={}))


def r6_the_budget_counts_no_retries(patch: Patch) -> None:
    _changed_ask(patch, lambda health: replace(health, budget=Budget()))


def r6_an_unused_permit_is_kept(patch: Patch) -> None:
    patch.setattr(Admission, "__exit__", lambda *_: None)


def r6_an_outcome_that_was_not_reported_is_forgotten(patch: Patch) -> None:
    patch.setattr(Downstreams, "_carry", lambda *_: None)


def r6_an_outcome_is_carried_into_no_write(patch: Patch) -> None:
    patch.setattr(rules, "carry", lambda health, *_: health)


def r6_a_writer_does_not_recognize_its_write(patch: Patch) -> None:
    """Either guard alone prevents the bug."""
    put = Table.put
    ask = rules.ask

    def with_another_writer(self: Any, item: Any, *given: Any) -> Any:
        write = put(self, item, *given)
        return write._replace(item={**write.item, "writer": {"S": "another"}}) if write.item else write

    patch.setattr(Table, "put", with_another_writer)
    patch.setattr(
        rules,
        "ask",
        lambda health, settings, permit, *given: ask(
            health, settings, replace(permit, code=permit.code + "+" * (permit.code in health.permits)), *given
        ),
    )


def r7_every_failure_counts(patch: Patch) -> None:
    report = rules.report
    patch.setattr(rules, "report", lambda *given: (report(*given)[0], True))


def r7_a_failure_that_was_not_reported_counts(patch: Patch) -> None:
    report = Downstreams._report

    def counts(self: Any, name: str, settings: Any, *given: Any) -> bool:
        unreported = []
        self._on_unreported = unreported.append
        return report(self, name, settings, *given) or bool(unreported)

    patch.setattr(Downstreams, "_report", counts)


def r7_messages_are_held_back_at_any_age(patch: Patch) -> None:
    patch.setattr(Policy, "max_age", 1e9)


def r7_a_copy_is_a_new_message(patch: Patch) -> None:
    send_copy = RetryQueue.send_copy
    patch.setattr(
        RetryQueue, "send_copy", lambda self, message, wait, _first: send_copy(self, message, wait, 1_000_800)
    )


def r7_no_copy_before_sqs_dead_letters(patch: Patch) -> None:
    patch.setattr(deferral, "RESEND_RECEIVES", 10**6)


def r1_deleted_before_the_copy_is_sent(patch: Patch) -> None:
    send_copy = RetryQueue.send_copy

    def ignores_errors(*given: Any) -> None:
        try:
            send_copy(*given)
        except Exception:
            return

    patch.setattr(RetryQueue, "send_copy", ignores_errors)


def r5_no_message_waits(patch: Patch) -> None:
    patch.setattr(Ledger, "would_begin", lambda *_: False)


@pytest.mark.parametrize(
    ("remove", "plan", "faults", "broken"),
    [
        (r5_state_is_written_unconditionally, Plan(TWO, BREAKER_ONLY, limited=False, down=DOWN), 0, "R5"),
        (r5_every_message_is_a_probe, Plan(TWO, BREAKER_ONLY, limited=False, down=DOWN), 0, "R5"),
        (r5_probes_before_they_are_due, Plan(TWO, BREAKER_ONLY, limited=False, down=DOWN), 0, "R5"),
        (r5_a_call_that_hangs_is_no_failure, Plan(ONE, fault_kinds=("die after",)), 1, "R5"),
        (r5_all_requests_have_one_downstream, Plan((*ONE, ("b", '{"to": "b"}')), commands=("open",)), 0, "R5"),
        (r5_a_forced_breaker_half_opens, Plan(ONE, commands=("open",)), 0, "R5"),
        (r5_an_open_breaker_permits, Plan(TWO, BREAKER_ONLY, limited=False, down=DOWN), 0, "R5"),
        (
            r5_a_lease_without_clock_skew,
            Plan(TWO, BREAKER_ONLY, limited=False, down=DOWN, step=119, skews=(-5, 0), fault_kinds=FROZEN),
            1,
            "R5",
        ),
        (r5_an_old_outcome_closes, Plan(TWO, BREAKER_ONLY, limited=False, down=DOWN, fault_kinds=FROZEN), 1, "R5"),
        (r5_a_message_that_is_held_back_claims_its_attempt, Plan(ONE, commands=("open", "close")), 0, "R5"),
        (r6_the_limit_counts_no_permits, Plan(TWO, most=1), 0, "R6"),
        (r6_the_budget_counts_no_retries, Plan(TWO, watching_policy(9), down=DOWN), 0, "R6"),
        (r6_an_unused_permit_is_kept, Plan(ONE * 2), 0, "R6"),
        (r6_an_outcome_that_was_not_reported_is_forgotten, Plan(ONE, fault_kinds=("throttle",)), 1, "R6"),
        (r6_an_outcome_is_carried_into_no_write, Plan(TWO, workers=1, fault_kinds=("lose",)), 1, "R6"),
        (r6_a_writer_does_not_recognize_its_write, Plan(ONE, most=1, fault_kinds=("twice",)), 1, "R6"),
        (r7_every_failure_counts, Plan(ONE, down=DOWN), 0, "R7"),
        (
            r7_a_failure_that_was_not_reported_counts,
            UNREPORTED,
            1,
            "R7",
        ),
        (r7_messages_are_held_back_at_any_age, Plan(ONE, commands=("open",)), 0, "R7"),
        (r7_a_copy_is_a_new_message, Plan(ONE, commands=("open",), receives=898), 0, "R7"),
        (
            r7_no_copy_before_sqs_dead_letters,
            Plan(ONE, watching_policy(max_age=3600), max_age=3600, commands=("open",), receives=988),
            0,
            "R7",
        ),
        (
            r1_deleted_before_the_copy_is_sent,
            Plan(ONE, commands=("open",), receives=898, fault_kinds=("unsent",)),
            1,
            "R1",
        ),
        (r5_no_message_waits, Plan(ONE, commands=("open", "close")), 0, "R5"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_its_protection_a_small_world_of_downstreams_breaks(
    remove: Callable[[Patch], None], plan: Plan, faults: int, broken: str, monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, history = first_violation(lambda: DownstreamWorld(plan), faults)
    assert name == broken, history


def test_without_its_protection_a_random_schedule_of_downstreams_breaks(monkeypatch: Patch) -> None:
    r6_the_limit_counts_no_permits(monkeypatch)
    assert first_broken(downstream_world.random_world, range(1000))[0] in ("R5", "R6")
