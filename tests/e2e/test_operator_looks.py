"""The operator command on the deployed stack: what the doctor says of it, retries, and the token."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dev.emulator.downstream import Step
from tests.e2e.deployed_chatbot import DeployedChatbot
from tests.e2e.deployed_worker import END, DeployedWorker

Slotkeeper = Callable[..., Any]


# What no test of this directory changes for long: processes, queues and alarms have been through a lot by now.
OF_THE_TEMPLATE = ("stack", "visibility", "redrive", "event-sources", "worker-concurrency", "functions", "recursion")
OF_THE_TEMPLATE += ("tables", "rules", "alarm-actions", "topic-key")


def test_the_doctor_looks_at_everything_and_finds_what_the_template_has_made_healthy(slotkeeper: Slotkeeper) -> None:
    checks = {one["check"]: one for one in slotkeeper("doctor")["checks"]}
    assert not [f for one in checks.values() for f in one["findings"] if "not checked" in f["saw"]]
    assert [name for name in OF_THE_TEMPLATE if checks[name]["level"] != "ok"] == []


def test_a_retry_that_scheduler_is_to_bring_is_made_now(slotkeeper: Slotkeeper, work: DeployedWorker) -> None:
    request = work.request(Step(answer="slow_down", retry_after=3600))
    work.send(request)
    work.wait_for(request, "WAITING")
    (listed,) = slotkeeper("retry", "list", "--request-id", request)["retries"]
    assert (listed["by"], listed["attempt"]) == ("schedule", 2)
    assert slotkeeper("retry", "run-now", request) == {"sent": request, "attempt": 2}
    assert work.wait_for(request, *END)["status"] == "SUCCEEDED"
    assert work.schedule(request, attempt=2) is None


def test_a_retry_that_is_cancelled_is_a_dead_letter_with_its_story(
    slotkeeper: Slotkeeper, work: DeployedWorker
) -> None:
    work.empty_dead_letters()
    request = work.request(Step(answer="slow_down", retry_after=3600))
    work.send(request)
    work.wait_for(request, "WAITING")
    assert slotkeeper("retry", "cancel", request, "--why", "no longer wanted")["sent"] is True
    letter = work.dead_letter(request)
    assert (letter["code"], letter["retry_count"]) == ("Cancelled", "2")
    assert [entry["attempt"] for entry in json.loads(letter["history"])] == [1, 2]
    assert work.wait_for(request, *END)["status"] == "DEAD_LETTERED"
    assert work.calls(request) == 1


def test_a_token_that_is_dropped_is_asked_for_once_more(slotkeeper: Slotkeeper, bot: DeployedChatbot) -> None:
    assert bot.say().status == 200
    before, posts = slotkeeper("token", "show"), bot.asked("/auth")
    assert before["stored"] is True
    assert slotkeeper("token", "invalidate")["removed"] is True
    assert slotkeeper("token", "show")["stored"] is False
    bot.service.invalidate()  # else the warm container goes on with the one that it has
    assert {reply.status for reply in bot.say_at_once(3)} == {200}
    after = slotkeeper("token", "show")
    assert (after["generation"], after["stored"]) == (before["generation"] + 1, True)
    assert bot.asked("/auth") == posts + 1
