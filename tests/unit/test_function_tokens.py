"""No task token is in the logs, the metrics or the events of the functions, nor in the messages that they keep."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.account.boundary import passed_values, refuse
from tests.unit.conftest import CONTEXT, NOW, Account, Load, delivery, request_record
from tests.unit.janitor_scene import REQUEST, JanitorScene

TOKEN = "AAAA-the-token-of-the-caller"
LONG_AGO = NOW - 10**7  # before the functions' own clock


def _events_of(module: Any) -> list[str]:
    published: list[str] = []

    def publish(params: Any, **_: Any) -> Any:
        published.extend(each["Detail"] for each in params["Entries"])

    module._completion_events._events.meta.events.register("provide-client-params.events.PutEvents", publish)
    return published


@pytest.fixture
def shown(account: Account, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """All texts that were written, logged, kept and notified until a call of the fixture."""

    def everything() -> str:
        output = capsys.readouterr()
        # With every key: the layer's modules keep the logger of their first import.
        logged = [vars(record) for record in caplog.records]
        return f"{output.out}{output.err}{logged}{json.dumps(account.messages(account.dead_letter_url))}"

    return everything


@pytest.mark.parametrize(
    "body",
    [
        REQUEST | {"task_token": [TOKEN]},
        REQUEST | {"task_token": f"{TOKEN} with space"},
        [{"task_token": TOKEN}],
        '{"task_token": "' + TOKEN + '",',
        REQUEST | {"task_token": TOKEN},
        REQUEST | {"process": "q", "task_token": TOKEN},
    ],
    ids=["wrong type", "white space", "a list", "cut off", "valid", "rejected"],
)
def test_the_starter_shows_no_token(load: Load, shown: Callable[[], str], body: Any) -> None:
    group = body["process"] if isinstance(body, dict) else "p"
    load("starter").handler({"Records": [request_record(body, group=group)]}, CONTEXT)
    assert TOKEN not in shown()


def test_an_error_of_the_starter_shows_no_token(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    starter = load("starter")
    refuse(starter._starts._stepfunctions, "StartExecution", "ThrottlingException")
    starter.handler({"Records": [request_record(REQUEST | {"task_token": TOKEN})]}, CONTEXT)
    output = capsys.readouterr()
    assert '"StarterErrors":[1.0]' in output.out
    assert TOKEN not in output.out + output.err


@pytest.mark.parametrize("refusal", ["", "TaskTimedOut", "AccessDeniedException"])
@pytest.mark.parametrize("function", ["janitor", "status event", "refused message"])
def test_the_sender_of_ends_shows_no_token(
    account: Account, load: Load, shown: Callable[[], str], function: str, refusal: str
) -> None:
    scene = JanitorScene(account, TOKEN)
    scene.start(at=LONG_AGO)
    scene.abort(at=LONG_AGO)
    scene.release()
    module = load("janitor" if function == "janitor" else "ending")
    if refusal:
        refuse(module._stepfunctions, "SendTaskFailure", refusal, message=TOKEN)  # as a real error may
    published = _events_of(module)
    notified = passed_values(
        module._endings._notices._sns if function != "janitor" else account.sns, "Publish", "Message"
    )
    body: dict[str, Any] = {"detail": {"name": scene.execution, "status": "FAILED"}}
    if function == "refused message":
        account.ending_queue.refused(delivery(REQUEST | {"weight": "x", "task_token": TOKEN}), "InvalidRequest", "why")
        body = json.loads(account.next_ending()["body"])
    module.handler({"Records": [account.ending(body)]}, CONTEXT)
    is_published = refusal != "AccessDeniedException"
    assert (len(account.answers), len(published)) == (not refusal, is_published)
    assert TOKEN not in shown() + "".join(published) + "".join(notified)
