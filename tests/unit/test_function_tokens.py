"""No task token is in the logs, the metrics or the events of the functions, nor in the messages that they keep."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.boundary import refuse
from tests.unit.caller_scene import REQUEST, TOKEN, CallerScene
from tests.unit.conftest import CONTEXT, NOW, Account, Load, request_record

LONG_AGO = NOW - 10**7  # before the functions' own clock
REFUSALS = ["", "TaskTimedOut", "AccessDeniedException"]


@pytest.fixture
def scene(account: Account) -> CallerScene:
    return CallerScene(account)


def _events_of(module: Any) -> list[str]:
    published: list[str] = []

    def publish(params: Any, **_: Any) -> Any:
        published.extend(each["Detail"] for each in params["Entries"])

    module._completion_events._events.meta.events.register("provide-client-params.events.PutEvents", publish)
    return published


def _logged(caplog: pytest.LogCaptureFixture) -> str:
    """What the layer has logged, with every key: its modules keep the logger of their first import."""
    return str([vars(record) for record in caplog.records])


def _bodies(account: Account) -> str:
    urls = (account.dead_letter_url, account.failed_url)
    return json.dumps([account.messages(url) for url in urls])


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize(
    "body",
    [
        REQUEST | {"process": "q", "task_token": TOKEN},
        REQUEST | {"task_token": [TOKEN]},
        REQUEST | {"task_token": f"{TOKEN} with space"},
        [{"task_token": TOKEN}],
        '{"task_token": "' + TOKEN + '",',
        REQUEST | {"task_token": TOKEN},
    ],
    ids=["unknown process", "wrong type", "white space", "a list", "cut off", "valid"],
)
def test_the_starter_shows_no_token(
    scene: CallerScene,
    load: Load,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    body: Any,
    refusal: str,
) -> None:
    scene.refusal = refusal
    starter = load("starter")
    scene.answer_calls_of(starter._callers()._stepfunctions)
    published = _events_of(starter)
    group = body["process"] if isinstance(body, dict) else "p"
    starter.handler({"Records": [request_record(body, group=group)]}, CONTEXT)
    output = capsys.readouterr()
    assert len(published) == len(scene.account.messages(scene.account.dead_letter_url))
    assert TOKEN not in output.out + output.err + _logged(caplog) + "".join(published) + _bodies(scene.account)


def test_an_error_of_the_starter_shows_no_token(
    scene: CallerScene, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    starter = load("starter")
    refuse(starter._starter.workflow._stepfunctions, "StartExecution", "ThrottlingException")
    starter.handler({"Records": [request_record(REQUEST | {"task_token": TOKEN})]}, CONTEXT)
    output = capsys.readouterr()
    assert '"StarterErrors":[1.0]' in output.out
    assert TOKEN not in output.out + output.err


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("function", ["janitor", "execution_closed"])
def test_the_janitor_shows_no_token(
    scene: CallerScene,
    load: Load,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    function: str,
    refusal: str,
) -> None:
    scene.refusal = refusal
    scene.start(at=LONG_AGO)
    scene.abort(at=LONG_AGO)
    scene.child("FAILED")
    module = load(function)
    scene.answer_calls_of(module._stepfunctions)
    module._stepfunctions.meta.events.register("after-call.stepfunctions", scene._set_dates)
    published = _events_of(module)
    handle = scene.account.status_event(scene.execution) if function == "execution_closed" else ""
    record = {
        "messageId": "m1",
        "receiptHandle": handle,
        "body": json.dumps({"detail": {"name": scene.execution}}),
        "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "0"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
    }
    module.handler({"Records": [record]}, CONTEXT)
    output = capsys.readouterr()
    assert (len(scene.seen), len(published)) == (1, 1)
    assert TOKEN not in output.out + output.err + _logged(caplog) + "".join(published) + _bodies(scene.account)
