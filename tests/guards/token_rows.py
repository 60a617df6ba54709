"""Rows of the shared token."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from slotkeeper.token import Timing, TokenTable, http_client, lock, timing
from slotkeeper.token import item as token_item
from slotkeeper.token import refresh as token_search
from slotkeeper.token.refresh import TokenRefresh
from tests.guards.edits import code
from tests.guards.rows import Row, Schedules, World
from tests.simulation import token_state, token_world
from tests.simulation.token_state import DEATHS, FREEZES, Plan
from tests.simulation.token_world import TokenWorld
from tests.simulation.world_runs import Remove, replaced, set_to

Patch = pytest.MonkeyPatch
TOKEN = "tests/unit/token"
DECIDES = f"{TOKEN}/test_token_policy.py::test_an_instance_decides_by_the_item"
FAILURES = f"{TOKEN}/test_token_failures.py"
ON_TIME = {"clock_leads": (0.0, 0.0)}


def tokens(*caches: str, **given: Any) -> Callable[[], TokenWorld]:
    """A world of instances with these caches. See Plan."""
    plan = Plan(caches, **ON_TIME, **given) if caches else Plan(**given)
    return lambda: TokenWorld(plan, timeless=True)


FROZEN = World(tokens("live", "live", fault_kinds=FREEZES, probes=False), 1, "T3")


def takes_no_lock_over(patch: Patch) -> None:
    take = TokenTable.acquire
    patch.setattr(
        TokenTable, "acquire", lambda self, name, seen, *mine: seen.lock is None and take(self, name, seen, *mine)
    )


def believes_each_store(patch: Patch) -> None:
    store = TokenTable.store
    patch.setattr(TokenTable, "store", lambda *given: (True, store(*given)[1]))


def refuses_all_instances(self: TokenRefresh, code: str, reason: str, _pause: float) -> None:
    self._refuse(code, reason, self._deps.timing.refusal)


def one_post_less(how: str) -> Remove:
    return lambda patch: patch.setitem(token_state.POSTS_OF_A_FAULT, how, token_state.POSTS_OF_A_FAULT[how] - 1)


ROWS = [
    Row(
        "f29-a-random-schedule-finds-a-stale-store",
        "A stale holder stores its dead token over the newer one (T3).",
        replaced(token_item, "HELD_CONDITION", "= :mine", "= :mine OR attribute_exists(token_name)"),
        Schedules(token_world.random_world, range(500, 2000), "T3"),
    ),
    Row(
        "f29-a-late-post-is-not-marked",
        "A holder that resumes late has invalidated the newer token with its POST and does not mark it (T3).",
        code(
            TokenRefresh._was_stored,
            "if item.access_token is not None:\n    self.bad = KnownToken(item.access_token, item.generation)",
        ),
        f"{FAILURES}::test_t3_f29_a_holder_that_resumes_after_its_lease_neither_overwrites_nor_leaves_a_dead_token",
        also=("F36",),
    ),
    Row(
        "f30-no-take-over",
        "The holder dies, and no instance takes its lock over (T2).",
        takes_no_lock_over,
        World(tokens(fault_kinds=DEATHS, probes=False), 1, "T2"),
    ),
    Row(
        "f31-any-401-kills-the-token",
        "A 401 of an older token triggers a refresh of the new one: an endless cycle (action-destinations #1239).",
        code(lock.SharedToken.invalidate, "cached.value == token", "True"),
        f"{TOKEN}/test_token_lock.py::test_f31_a_401_of_an_older_token_does_not_invalidate_the_new_one",
    ),
    Row(
        "f31-no-interval-between-refreshes",
        "A request that is always answered 401 refreshes the shared token each time, without a pause.",
        code(timing.is_young, "-timing.spread <= now - stored_at < timing.min_interval", "False"),
        DECIDES,
    ),
    Row(
        "f32-every-instance-waits-a-lease",
        "Every instance watches a lock that expired long ago for a whole lease (python_dynamodb_lock #2793).",
        code(timing.decide, "now >= item.lock.expires or watched >= timing.lease", "watched >= timing.lease"),
        DECIDES,
    ),
    Row(
        "f33-ones-own-lock-is-anothers",
        "The lock is taken, the answer is lost, and the taker waits a whole lease for itself (dynamolock #280).",
        code(TokenRefresh._decide, "item.lock is not None and item.lock.release_code in self._taken", "False"),
        f"{FAILURES}::test_f33_a_lock_whose_answer_was_lost_is_recognized_by_its_holder",
    ),
    Row(
        "f33-a-stored-token-is-thrown-away",
        "The store succeeded, its answer was lost, and the valid token is refreshed again.",
        code(
            TokenTable.store,
            "_, item = self._update(name, STORE_UPDATE, HELD_CONDITION, values)\n"
            "return item.access_token == token, item",
            "return self._update(name, STORE_UPDATE, HELD_CONDITION, values)",
        ),
        f"{TOKEN}/test_token_item.py::test_f33_a_store_whose_answer_was_lost_succeeds_when_it_is_repeated",
    ),
    Row(
        "f33-a-throttled-store-costs-a-post",
        "The store is throttled, and the token in hand is forgotten: another POST, which kills it.",
        code(
            TokenRefresh._hold,
            "since = self._held_since = self._taken[code]",
            "since = self._held_since = self._taken[code]\nself._new_token = None",
        ),
        f"{FAILURES}::test_f33_a_throttled_store_is_retried_with_the_same_token",
    ),
    Row(
        "f34-a-refusal-in-milliseconds",
        "A refusal with its time in milliseconds stops every instance forever.",
        code(timing.decide, "0 < item.refused_until - now <= timing.longest_refusal", "item.refused_until > now"),
        DECIDES,
    ),
    Row(
        "f35-every-instance-calls-the-api",
        "The credentials are wrong, and every instance calls POST /auth again and again.",
        code(TokenRefresh._refuse, "self._deps.clock() + pause", "self._deps.clock()"),
        f"{TOKEN}/test_token_refusals.py::test_f35_wrong_credentials_cost_one_post_and_all_fail_fast_with_the_reason",
    ),
    Row(
        "f36-a-post-on-an-old-lock",
        "The function is frozen between lock and POST, and posts although its lock has expired (powertools #8049).",
        code(TokenRefresh._hold, "left < timing.api / 2", "False"),
        f"{FAILURES}::test_f36_a_container_frozen_between_lock_and_post_does_not_post_on_an_old_lock",
    ),
    Row(
        "f36-a-refresh-without-time",
        "A Lambda with a second left takes the lock, and times out while it holds it.",
        code(timing.decide, "left < timing.holding", "False"),
        DECIDES,
    ),
    Row(
        "t1-a-lease-shorter-than-the-post",
        "Another instance takes the lock over during a POST.",
        set_to(Timing, "lease", property(lambda self: self.api / 2)),
        World(tokens(probes=False), 0, "T1"),
    ),
    Row(
        "t1-a-deadline-that-drops-outlast",
        "A server that sends its headers byte by byte outlasts the lock, and another instance authenticates meanwhile.",
        code(http_client._Deadline._end, "self._line.shutdown(socket.SHUT_RDWR)", "self._line.getsockname()"),
        f"{TOKEN}/test_http_client.py::test_an_answer_byte_by_byte_ends_at_the_deadline",
    ),
    *(
        Row(
            f"t1-one-post-less-after-a-fault-{how.replace(' ', '-')}",
            "The world's own bound of posts after a fault is not larger than needed.",
            one_post_less(how),
            World(tokens("live", "live", fault_kinds=frozenset({how})), 1, "T1"),
        )
        for how in token_state.POSTS_OF_A_FAULT
    ),
    Row(
        "t2-a-local-failure-stops-all-instances",
        "One container cannot read its secret, and every other one is refused a token too.",
        set_to(TokenRefresh, "_unlock_after_own_failure", refuses_all_instances),
        World(tokens(fault_kinds=frozenset({token_state.OWN}), probes=False), 1, "T2"),
    ),
    Row(
        "t3-a-token-that-was-not-stored-is-used",
        "A holder that has lost its lock uses its own token.",
        believes_each_store,
        FROZEN,
    ),
    Row(
        "t4-no-new-lock-after-a-slow-probe",
        "Two calls of a slow API do not fit into one lease.",
        set_to(token_search, "QUICK_PROBE_SHARE", inf),
        World(tokens("live", "live", slow_probes=True), 0, "T4"),
    ),
]
