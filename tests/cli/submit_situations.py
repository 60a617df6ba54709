"""What `slotkeeper request submit` answers if a request of the same id was sent before."""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.account_contents import fail, fail_held, job_run, succeed
from tests.cli.operator_account import Operator
from tests.cli.situations import Names, Situation

_SUBMIT = "request submit --process sample --request-id a"
_DAY_1 = f"{_SUBMIT} --arg=--day=1"
_DAY_2 = f"{_SUBMIT} --arg=--day=2"
_ARGUMENTS = {"--day": "1"}
_NOT_AGAIN = "The same request was sent before, and does not run again."
_REDRIVE = "Run it as its next attempt with: slotkeeper failed redrive a --process sample"


def _failed(operator: Operator) -> Names:
    return {"a": fail(operator, cause=job_run("no such month"), arguments=_ARGUMENTS)}


def _redriven(operator: Operator) -> str:
    fail(operator, arguments=_ARGUMENTS)
    ended = operator.run("failed", "redrive", "a", "--yes", "--json")
    return str(ended.json["redriven"][0]["next"])


def _succeeded_when_redriven(operator: Operator) -> Names:
    again = _redriven(operator)
    operator.start(again)
    operator.succeed(again)
    return {"again": again}


def _failed_again(operator: Operator) -> Names:
    again = _redriven(operator)
    operator.start(again)
    return {"again": fail_held(operator, again)}


def _returned(operator: Operator) -> Names:
    name = operator.hold("a", confirmed=False, arguments=_ARGUMENTS)
    operator.release(name)
    return {"again": operator.give_back(name)}


def _ended(end: str, code: str) -> Callable[[Operator], None]:
    return lambda operator: operator.leave(operator.wait("a", arguments=_ARGUMENTS), end, code, "so it is")


SITUATIONS = {
    **{
        f"another request has used the id, {state}: submit {option}": Situation(
            made,
            f"{_DAY_2} {option}",
            says=(
                "1 id was used by another request in the last 90 days. Give the new request an id of its own.",
                f"request a of sample ({state})",
                "Nothing was sent.",
            ),
            never=("sent: a", "line 1"),
            exit_code=3,
        )
        for state, made in {
            "succeeded": lambda operator: succeed(operator, arguments=_ARGUMENTS) and None,
            "started": lambda operator: operator.hold("a", arguments=_ARGUMENTS) and None,
            "queued": lambda operator: operator.wait("a", arguments=_ARGUMENTS) and None,
        }.items()
        for option in ("", "--wait")
    },
    **{
        f"the same request has succeeded: submit {option}": Situation(
            lambda operator: {"a": succeed(operator, arguments=_ARGUMENTS)},
            f"{_DAY_1} {option}",
            says=("not sent: a  {a}  succeeded.", _NOT_AGAIN, "slotkeeper request show a"),
            shows={"sent": [], "sent_before.0.state": "succeeded", "sent_before.0.execution": "{a}"},
        )
        for option in ("", "--wait")
    },
    **{
        f"the same request has failed: submit {option}": Situation(
            _failed,
            f"{_DAY_1} {option}",
            says=(
                "not sent: a  {a}  failed: no such month.",
                _NOT_AGAIN,
                _REDRIVE,
                "1 of 1 request failed. Queue them again with: slotkeeper failed redrive a --process sample",
            ),
            shows={"sent": [], "sent_before.0.reason": "no such month"},
            exit_code=1,
        )
        for option in ("", "--wait")
    },
    "the same request has failed, and succeeded as its next attempt": Situation(
        _succeeded_when_redriven,
        _DAY_1,
        says=("not sent: a  {again}  succeeded.", _NOT_AGAIN),
        shows={"sent_before.0.execution": "{again}"},
    ),
    "the same request has failed, also as its next attempt": Situation(
        _failed_again, _DAY_1, says=("not sent: a  {again}  failed: the job failed.", _REDRIVE), exit_code=1
    ),
    "the same request runs": Situation(
        lambda operator: {"a": operator.hold("a", arguments=_ARGUMENTS)},
        _DAY_1,
        says=("not sent: a  {a}  started.", _NOT_AGAIN, "slotkeeper request show a"),
        never=(_REDRIVE,),
    ),
    "the same request runs: --wait waits for it": Situation(
        lambda operator: {"a": operator.hold("a", arguments=_ARGUMENTS)},
        f"{_DAY_1} --wait --timeout 0",
        says=("not sent: a  {a}  started.", "1 of 1 request had not ended after 0 s"),
        exit_code=1,
    ),
    "the same request lost its slot before its work began": Situation(
        _returned,
        _DAY_1,
        says=("not sent: a  {again}  queued.", _NOT_AGAIN),
        shows={"sent_before.0.state": "queued"},
    ),
    **{
        f"the same request ended as {end}: it is sent again": Situation(
            _ended(end, code), _DAY_1, says=("sent: a  sample-",), never=("not sent",)
        )
        for end, code in (("SKIPPED", "Skipped"), ("CANCELLED", "Cancelled"), ("REJECTED", "UnknownProcess"))
    },
    "a corrected request ended without a start: it is sent again": Situation(
        _ended("REJECTED", "InvalidExecution"), _DAY_2, says=("sent: a  sample-",), never=("not sent",)
    ),
}
