"""No task token is in the logs, the metrics or the events of the functions, nor in the messages that they keep."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.boundary import refuse
from tests.unit.conftest import CONTEXT, NOW, Account, Load, request_record
from tests.unit.janitor_scene import REQUEST, TOKEN, CallerScene

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


@pytest.fixture
def shown(account: Account, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """What was written, logged and kept until a call of the fixture."""

    def everything() -> str:
        output = capsys.readouterr()
        # With every key: the layer's modules keep the logger of their first import.
        logged = [vars(record) for record in caplog.records]
        kept = [account.messages(url) for url in (account.dead_letter_url, account.failed_url)]
        return f"{output.out}{output.err}{logged}{json.dumps(kept)}"

    return everything


UNKNOWN = REQUEST | {"process": "q", "task_token": TOKEN}  # its caller is answered


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        *((UNKNOWN, refusal) for refusal in REFUSALS),
        (REQUEST | {"task_token": [TOKEN]}, ""),
        (REQUEST | {"task_token": f"{TOKEN} with space"}, ""),
        ([{"task_token": TOKEN}], ""),
        ('{"task_token": "' + TOKEN + '",', ""),
        (REQUEST | {"task_token": TOKEN}, ""),
    ],
    ids=[*REFUSALS, "wrong type", "white space", "a list", "cut off", "valid"],
)
def test_the_starter_shows_no_token(
    scene: CallerScene, load: Load, shown: Callable[[], str], body: Any, refusal: str
) -> None:
    scene.refusal = refusal
    starter = load("starter")
    scene.answer_calls_of(starter._callers()._stepfunctions)
    published = _events_of(starter)
    group = body["process"] if isinstance(body, dict) else "p"
    starter.handler({"Records": [request_record(body, group=group)]}, CONTEXT)
    is_valid = isinstance(body, dict) and body.get("process") == "p" and body["task_token"] == TOKEN
    assert len(published) == (not is_valid)
    assert TOKEN not in shown() + "".join(published)


def test_an_error_of_the_starter_shows_no_token(
    scene: CallerScene, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    starter = load("starter")
    refuse(starter._starts._stepfunctions, "StartExecution", "ThrottlingException")
    starter.handler({"Records": [request_record(REQUEST | {"task_token": TOKEN})]}, CONTEXT)
    output = capsys.readouterr()
    assert '"StarterErrors":[1.0]' in output.out
    assert TOKEN not in output.out + output.err


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("function", ["janitor", "ending"])
def test_the_janitor_shows_no_token(
    scene: CallerScene, load: Load, shown: Callable[[], str], function: str, refusal: str
) -> None:
    scene.refusal = refusal
    scene.start(at=LONG_AGO)
    scene.abort(at=LONG_AGO)
    scene.child("FAILED", at=LONG_AGO)
    module = load(function)
    scene.answer_calls_of(module._stepfunctions)
    module._stepfunctions.meta.events.register("after-call.stepfunctions", scene._set_dates)
    published = _events_of(module)
    handle = scene.account.status_event(scene.execution) if function == "ending" else ""
    record = request_record({"detail": {"name": scene.execution}}) | {"receiptHandle": handle}
    module.handler({"Records": [record]}, CONTEXT)
    assert (len(scene.seen), len(published)) == (1, 1)
    assert TOKEN not in shown() + "".join(published)
