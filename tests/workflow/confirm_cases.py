"""The values of the expressions of ConfirmSlot."""

from __future__ import annotations

from typing import Any

from slotkeeper.slots.protocol import CONFIRM_CONDITION, CONFIRM_UPDATE
from tests.workflow.case import MANUAL_INPUTS, REQUEST, case, caught, of_input
from tests.workflow.interpreter import ME, SUBSTITUTES, Variables
from tests.workflow.paths import MACHINE

CALLED = REQUEST | {"caller": "0" * 32}
_RUNNING = {"Attributes": {"holders": {"M": {ME: {"M": {"job": {"S": "j"}}}}}, "run_settings": {"M": {}}}}


def _with_settings(settings: dict[str, int]) -> dict[str, Any]:
    """The answer to the confirm of a process whose target is a state machine."""
    stored = {name: {"N": str(value)} for name, value in settings.items()}
    return {
        "Attributes": {"holders": {"M": {ME: {"M": {"job": {"S": MACHINE}}}}}, "run_settings": {"M": stored}},
    }


PERMITTED = [pattern.rpartition(":job/")[2] for pattern in SUBSTITUTES["PermittedTargets"].split(",")]


def _confirmed(target: str, timeout_minutes: int, settle_seconds: int = 0) -> Variables:
    return {
        "target": target,
        "permitted": PERMITTED,
        "failure": {},
        "timeout_minutes": timeout_minutes,
        "settle_seconds": settle_seconds,
        "caller": "NONE",
        "answer": "",
        "outcome": "",
        "starts": 0,
        "pages": 0,
    }


_UNCONFIRMED = {"caller": "UNKNOWN", "answer": "", "outcome": "", "run_state": "NOT_STARTED"}

CASES = [
    case(
        "ConfirmSlot.Arguments",
        {
            "TableName": "${SlotTableName}",
            "Key": {"process_name": {"S": "p"}},
            "UpdateExpression": CONFIRM_UPDATE,
            "ConditionExpression": CONFIRM_CONDITION,
            "ExpressionAttributeNames": {"#me": ME, "#state": "state"},
            "ExpressionAttributeValues": {":running": {"S": "RUNNING"}, ":none": {"M": {}}},
            "ReturnValues": "UPDATED_NEW",
        },
    ),
    case(
        "ConfirmSlot.Assign",
        _confirmed(MACHINE, 5, 90),
        result=_with_settings({"timeout_minutes": 5, "settle_seconds": 90}),
    ),
    case("ConfirmSlot.Assign", _confirmed(MACHINE, 60, 90), result=_with_settings({"settle_seconds": 90})),
    *(
        case(
            "ConfirmSlot.Assign",
            _confirmed("j", 60) | {"caller": "UNKNOWN" if given == CALLED else "NONE"},
            context=of_input(given),
            result=_RUNNING,
        )
        for given in (CALLED, *MANUAL_INPUTS)
    ),
    caught("ConfirmSlot.Catch.1.Assign", _UNCONFIRMED | {"failure": {"error": "Glue.X", "cause": "lost"}}),
    case(
        "ConfirmSlot.Catch.1.Assign",
        _UNCONFIRMED | {"failure": {"error": "E", "cause": "no cause given"}},
        errorOutput={"Error": "E"},
    ),
]
