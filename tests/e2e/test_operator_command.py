"""The operator command on the deployed stack: doctor, retries, and the token."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dev.emulator.downstream import Step
from tests.e2e.deployed_chatbot import DeployedChatbot
from tests.e2e.deployed_worker import END, DeployedWorker

Slotkeeper = Callable[..., Any]


# Checks whose subjects no test of this folder changes permanently, unlike processes, queues and alarms.
OF_THE_TEMPLATE = ("stack", "visibility", "redrive", "event-sources", "worker-concurrency", "functions", "recursion")
OF_THE_TEMPLATE += ("tables", "rules", "alarm-actions", "topic-key")


def test_the_doctor_checks_everything_and_the_templates_resources_are_healthy(slotkeeper: Slotkeeper) -> None:
    checks = {one["check"]: one for one in slotkeeper("doctor")["checks"]}
    assert not [f for one in checks.values() for f in one["findings"] if "not checked" in f["saw"]]
    assert [name for name in OF_THE_TEMPLATE if checks[name]["level"] != "ok"] == []


def test_run_now_makes_a_scheduled_retry_immediately(slotkeeper: Slotkeeper, work: DeployedWorker) -> None:
    request = work.request(Step(answer="slow_down", retry_after=3600))
    work.send(request)
    work.wait_for(request, "WAITING")
    (listed,) = slotkeeper("retry", "list", "--request-id", request)["retries"]
    assert (listed["by"], listed["attempt"]) == ("schedule", 2)
    assert slotkeeper("retry", "run-now", request) == {"sent": request, "attempt": 2}
    assert work.wait_for(request, *END)["status"] == "SUCCEEDED"
    assert work.schedule(request, attempt=2) is None


def test_a_cancelled_retry_is_a_dead_letter_with_its_history(slotkeeper: Slotkeeper, work: DeployedWorker) -> None:
    work.empty_dead_letters()
    request = work.request(Step(answer="slow_down", retry_after=3600))
    work.send(request)
    work.wait_for(request, "WAITING")
    assert slotkeeper("retry", "cancel", request, "--why", "no longer wanted")["sent"] is True
    dead_letter = work.dead_letter(request)
    assert (dead_letter["code"], dead_letter["retry_count"]) == ("Cancelled", "2")
    assert [entry["attempt"] for entry in json.loads(dead_letter["history"])] == [1, 2]
    assert work.wait_for(request, *END)["status"] == "DEAD_LETTERED"
    assert work.calls(request) == 1


def test_after_an_invalidation_one_token_is_requested(slotkeeper: Slotkeeper, bot: DeployedChatbot) -> None:
    assert bot.say().status == 200
    before, posts = slotkeeper("token", "show"), bot.requests("/auth")
    assert before["stored"] is True
    assert slotkeeper("token", "invalidate")["removed"] is True
    assert slotkeeper("token", "show")["stored"] is False
    bot.service.invalidate()  # otherwise the warm container continues to use its token
    assert {reply.status for reply in bot.say_simultaneously(3)} == {200}
    after = slotkeeper("token", "show")
    assert (after["generation"], after["stored"]) == (before["generation"] + 1, True)
    assert bot.requests("/auth") == posts + 1
