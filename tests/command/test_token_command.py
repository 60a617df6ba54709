"""`slotkeeper token`: the state of the token without the token itself, and its removal by the lock's protocol."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.chatbot.token import ITEM_NAME
from slotkeeper.token import TokenTable
from tests.command.operator_account import Operator, StubbedCalls, stack_of

TOKEN = "eyJQUIET-FERRET-SUNDIAL-MARROW"
FUNCTION = "AWS::Lambda::Function"
CODE = "ROWBOAT-LANTERN-GRAVEL"
REFUSAL = "POST /auth was answered with 401"


def put(operator: Operator, generation: int = 7, age: float = 600, **attributes: Any) -> None:
    item = {
        "token_name": {"S": ITEM_NAME},
        "access_token": {"S": TOKEN},
        "generation": {"N": str(generation)},
        "stored_at": {"N": f"{time.time() - age:.3f}"},
        **attributes,
    }
    operator.dynamodb.put_item(TableName=operator.outputs["TokenTableName"], Item=item)


def lock(expires_in: float) -> dict[str, Any]:
    return {"M": {"release_code": {"S": CODE}, "expires": {"N": f"{time.time() + expires_in:.3f}"}}}


def refusal(seconds: float) -> dict[str, Any]:
    return {"refused_until": {"N": f"{time.time() + seconds:.3f}"}, "refused_reason": {"S": REFUSAL}}


def raw(operator: Operator) -> dict[str, Any]:
    key = {"token_name": {"S": ITEM_NAME}}
    item: dict[str, Any] = operator.dynamodb.get_item(TableName=operator.outputs["TokenTableName"], Key=key)["Item"]
    return item


# show --------------------------------------------------------------------------------------------------------------


NONE = {
    "token_name": "chatbot",
    "generation": 0,
    "stored": False,
    "stored_at": None,
    "age_seconds": None,
    "lock": None,
    "refused": None,
    "refreshed_by": "the container that needs it",
}


def test_show_before_the_first_token(operator: Operator) -> None:
    assert operator.run("token", "show", "--json").json == NONE
    assert "none yet" in operator.run("token", "show").stdout


@pytest.mark.parametrize(
    ("attributes", "key", "has", "shown"),
    [
        (lambda: {"refresh_lock": lock(8)}, "lock", {"expired": False}, "the lock expires in"),
        (lambda: {"refresh_lock": lock(-60)}, "lock", {"expired": True}, "its holder has died"),
        (lambda: refusal(20), "refused", {"over": False, "reason": REFUSAL}, f": {REFUSAL}"),
        (lambda: refusal(-20), "refused", {"over": True}, f" (expired): {REFUSAL}"),
    ],
)
def test_show_of_a_stored_token_its_lock_and_a_refusal(
    operator: Operator, attributes: Callable[[], dict[str, Any]], key: str, has: dict[str, Any], shown: str
) -> None:
    put(operator, **attributes())
    data, text = operator.run("token", "show", "--json").json, operator.run("token", "show").stdout
    assert (data["generation"], data["stored"], data["age_seconds"]) == (7, True, pytest.approx(600, abs=30))
    assert data[key] | has == data[key]
    assert "10 min" in text
    assert shown in text


def test_a_malformed_item_is_reported_without_its_token(operator: Operator) -> None:
    put(operator, stored_at={"S": TOKEN})
    ended = operator.run("token", "show")
    assert ended.exit_code == 1
    assert "stored_at is not of its documented type" in ended.stderr
    assert TOKEN not in ended.stderr + ended.stdout


def _log_answer(parsed: Any, **_: Any) -> None:
    """What botocore logs of a response."""
    logging.getLogger("botocore.parsers").debug("Response body: %s", parsed)


@pytest.mark.parametrize(
    "command",
    [
        ("show",),
        ("show", "--json"),
        ("invalidate", "--yes"),
        ("invalidate", "--yes", "--json"),
        ("invalidate", "--generation", "6"),
        ("invalidate", "--clear-refusal", "--yes"),
        ("invalidate",),
    ],
)
def test_the_token_and_its_release_code_are_never_printed_or_logged(
    operator: Operator, command: tuple[str, ...]
) -> None:
    put(operator, refresh_lock=lock(8), **refusal(20))
    written = io.StringIO()
    handler, root = logging.StreamHandler(written), logging.getLogger("botocore")
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    operator.dynamodb.meta.events.register("after-call.dynamodb", _log_answer)
    try:
        ended = operator.run("token", *command)
    finally:
        operator.dynamodb.meta.events.unregister("after-call.dynamodb", _log_answer)
        root.setLevel(before)
        root.removeHandler(handler)
    assert "stored_at" in written.getvalue(), "the log contains the response"
    output = ended.stdout + ended.stderr + written.getvalue() + json.dumps(operator.audited())
    pieces = [TOKEN[n : n + 8] for n in range(len(TOKEN) - 8)] + [CODE[n : n + 8] for n in range(len(CODE) - 8)]
    assert not [piece for piece in pieces if piece in output]


# invalidate --------------------------------------------------------------------------------------------------------


def test_invalidate_removes_the_token_and_keeps_its_generation(operator: Operator) -> None:
    put(operator)
    ended = operator.run("token", "invalidate", "--yes", "--json")
    assert ended.exit_code == 0
    assert ended.json == {"generation": 7, "removed": True, "refusal_lifted": False, "refresher_asked": False}
    assert "access_token" not in raw(operator)
    assert raw(operator)["generation"] == {"N": "7"}
    assert operator.audited()[0] | {"action": "token invalidate", "generation": 7} == operator.audited()[0]
    shown = operator.run("token", "show")
    assert "removed by an operator" in shown.stdout
    assert operator.run("token", "show", "--json").json["stored"] is False


@pytest.mark.parametrize(
    ("generation", "age", "expected"),
    [(["--generation", "6"], 600, "generation 7 is stored, not 6"), ([], 1, "younger than the 5 s between two")],
)
def test_invalidate_is_refused_for_another_generation_or_a_young_token(
    operator: Operator, generation: list[str], age: float, expected: str
) -> None:
    put(operator, age=age)
    assert expected in operator.refuses("token", "invalidate", "--yes", *generation)


def test_invalidate_is_refused_if_the_token_is_refreshed_meanwhile(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(operator)
    drop = TokenTable.drop

    def late(self: TokenTable, name: str, generation: int) -> bool:
        put(operator, generation=8, age=0)
        return drop(self, name, generation)

    monkeypatch.setattr(TokenTable, "drop", late)
    ended = operator.run("token", "invalidate", "--yes")
    assert ended.exit_code == 3
    assert "a newer token than generation" in ended.stderr
    assert "access_token" in raw(operator)


def test_invalidate_needs_a_stored_token(operator: Operator) -> None:
    assert operator.run("token", "invalidate", "--yes").exit_code == 4
    put(operator)
    operator.run("token", "invalidate", "--yes")
    assert "is removed already" in operator.refuses("token", "invalidate", "--yes")


def test_invalidate_clears_a_refusal_with_or_without_a_token(operator: Operator) -> None:
    put(operator, **refusal(20))
    both = operator.run("token", "invalidate", "--clear-refusal", "--yes", "--json")
    assert (both.json["removed"], both.json["refusal_lifted"]) == (True, True)
    assert {"refused_until", "refused_reason", "access_token"} & raw(operator).keys() == set()
    operator.dynamodb.put_item(
        TableName=operator.outputs["TokenTableName"], Item={"token_name": {"S": ITEM_NAME}, **refusal(20)}
    )
    alone = operator.run("token", "invalidate", "--clear-refusal", "--yes")
    assert alone.exit_code == 0
    assert "The refusal is cleared." in alone.stdout
    operator.refuses("token", "invalidate", "--clear-refusal", "--yes")


def test_invalidate_keeps_a_newer_refusal(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    put(operator, **refusal(20))
    lift = TokenTable.clear_refusal

    def late(self: TokenTable, name: str, seen: float) -> bool:
        put(operator, **refusal(40))
        return lift(self, name, seen)

    monkeypatch.setattr(TokenTable, "clear_refusal", late)
    ended = operator.run("token", "invalidate", "--clear-refusal", "--yes", "--json")
    assert (ended.exit_code, ended.json["refusal_lifted"]) == (0, False)
    assert "refused_until" in raw(operator)


def test_invalidate_invokes_the_refreshing_function(operator: Operator) -> None:
    put(operator)
    operator.parameters["TokenRefreshSchedule"] = "rate(30 minutes)"
    functions = (("TokenRefresherFunction", "refresher-1", FUNCTION), ("Other", "other", FUNCTION))
    asked: list[dict[str, Any]] = []

    def invoke(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return {"StatusCode": 202}

    with stack_of(*functions), StubbedCalls("lambda", {"Invoke": invoke}):
        ended = operator.run("token", "invalidate", "--yes", "--json")
    assert ended.json["refresher_asked"] is True
    assert [(one["FunctionName"], one["InvocationType"]) for one in asked] == [("refresher-1", "Event")]
    with stack_of():
        put(operator)
        ended = operator.run("token", "invalidate", "--yes")
    assert ended.exit_code == 1
    assert "but no TokenRefresherFunction" in ended.stderr
