"""The requests of `make run-worker`: the mix, the answers to their attempts, the policy."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from dev.emulator.sample_data import months_as_json_lines
from dev.scenarios.worker import worker_mix as mix
from dev.scenarios.worker.worker_mix import Request, counts, draw, limit
from slotkeeper.retry.errors import Failure
from slotkeeper.retry.message import InvalidMessage, parse_message
from slotkeeper.retry.plan import AttemptHistory, RetryAt, plan_retry
from slotkeeper.retry.policy import Policy


def drawn(requests: int = 1000, seed: int = 1, scale: float = 0.15) -> list[Request]:
    return draw(requests, seed, scale, 25)


def failures(request: Request, scale: float = 0.15) -> int:
    return sum(step.answer != "normal" or step.seconds > limit(scale) for step in request.steps)


def test_the_same_seed_gives_the_same_requests_and_another_one_others() -> None:
    assert drawn(50) == drawn(50)
    assert [request.kind for request in drawn(50)] != [request.kind for request in drawn(50, seed=2)]


def test_six_in_ten_are_normal_three_slow_one_poison() -> None:
    assert counts(100) == {"normal": 60, "slow": 30, "poison": 10}
    assert Counter(request.kind for request in drawn(100)) == counts(100)


@pytest.mark.parametrize("requests", range(1, 30))
def test_the_first_request_of_any_run_has_its_retry_scheduled(requests: int) -> None:
    first, *others = drawn(requests)
    assert (first.kind, first.retry_after) == ("normal", 25)
    assert (first.steps[0].answer, first.steps[0].retry_after) == ("slow_down", 25)
    assert {request.retry_after for request in others} <= {None}


def test_two_in_ten_attempts_fail_of_those_that_are_not_too_slow() -> None:
    steps = [step for request in drawn()[1:] if request.kind != "poison" for step in request.steps]
    quick = [step for step in steps if step.seconds <= limit(0.15)]
    assert sum(step.answer != "normal" for step in quick) / len(quick) == pytest.approx(0.2, abs=0.03)
    assert {step.answer for step in quick} == {"normal", "slow_down", "error", "drop"}


def test_slow_requests_are_too_slow_once_or_twice() -> None:
    slow = [request for request in drawn() if request.kind == "slow"]
    too_slow = [sum(step.seconds > limit(0.15) for step in request.steps) for request in slow]
    assert set(too_slow) == {1, 2}
    assert all(step.seconds > limit(0.15) for request in slow for step in request.steps[:1])


@pytest.mark.parametrize("scale", [0.02, 0.15, 1.0])
def test_a_normal_call_ends_at_least_a_second_before_the_limit(scale: float) -> None:
    normal = [request for request in drawn(scale=scale) if request.kind == "normal"]
    assert max(step.seconds for request in normal for step in request.steps) <= limit(scale) - 1
    assert 1 <= limit(scale) <= 50  # the template's range


@pytest.mark.parametrize("seed", range(20))
def test_the_policy_allows_more_failures_than_are_drawn(seed: int) -> None:
    able = [request for request in drawn(seed=seed) if request.kind != "poison"]
    assert all(request.steps[-1].answer == "normal" for request in able)
    assert all(request.steps[-1].seconds <= limit(0.15) for request in able)
    assert max(failures(request) for request in able) <= mix.MAX_ATTEMPTS - 3


def test_the_policy_is_valid_and_waits_for_seconds() -> None:
    policy = Policy.from_document(mix.POLICY)
    starts = tuple(float(number) for number in range(mix.MAX_ATTEMPTS - 1))
    plan = plan_retry(Failure(("Retryable",), "no"), AttemptHistory("a", starts), policy, starts[-1])
    assert isinstance(plan, RetryAt)
    assert [policy.default.delay("a", attempt) >= 1 for attempt in (1, 2, 3)] == [True] * 3
    assert max(policy.default.delay(str(key), 7) for key in range(100)) <= 5


def test_no_two_requests_have_an_id_a_key_or_a_body_in_common() -> None:
    requests = drawn()
    for values in ({r.request_id for r in requests}, {r.key for r in requests}):
        assert len(values) == 1000
    assert len({request.body for request in requests}) == 1000


def test_there_are_six_kinds_of_poison() -> None:
    poison = [request for request in drawn() if request.kind == "poison"]
    assert len({request.poison.reason for request in poison[:6] if request.poison}) == 6
    assert all(request.parts is None for request in poison)
    assert [request.content is None for request in poison[:6]] == [True, False, False, False, False, False]
    assert [len(request.steps) for request in poison[:6]] == [1, 1, 1, 0, 0, 0]


def test_the_worker_refuses_only_invalid_messages() -> None:
    for request in drawn(200):
        if request.is_message:
            assert parse_message(request.body).request_id == request.request_id
        else:
            with pytest.raises(InvalidMessage):
                parse_message(request.body)


def test_the_damaged_line_has_the_returned_number() -> None:
    lines = ['{"weather": "sun"}', '{"weather": "rain"}', '{"weather": "fog"}']
    broken, number = mix.damaged(lines * 2)
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(broken.decode().splitlines()[number - 1])
    assert sum(line in lines for line in broken.decode().splitlines()) == 5


def test_an_input_is_split_by_the_field() -> None:
    lines = ['{"weather": "sun"}', '{"weather": "rain", "n": 1}', '{"weather": "sun", "n": 2}']
    assert mix.parts_of(lines) == {"sun": (lines[0], lines[2]), "rain": (lines[1],)}


def test_every_month_has_days_of_several_kinds() -> None:
    months = list(months_as_json_lines().items())
    assert (months[0][0], len(months)) == ("2012-01", 48)
    assert all(len(mix.parts_of(lines)) >= 2 for _, lines in months)
    assert sum(len(lines) for _, lines in months) == 1461
