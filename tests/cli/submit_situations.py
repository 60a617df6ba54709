"""What `slotkeeper request submit` answers if a request of the same id was sent before."""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.account_contents import job_run, run_before
from tests.cli.operator_account import Operator
from tests.cli.situations import Names, Situation

_SUBMIT = "request submit --process sample --request-id a"
_DAY_1 = f"{_SUBMIT} --arg=--day=1"
_DAY_2 = f"{_SUBMIT} --arg=--day=2"
_NOT_AGAIN = "The same request was sent before, and does not run again."
_REDRIVE = "Run it as its next attempt with: slotkeeper dlq redrive failed --id a"


def _ran(*outcomes: str) -> Callable[[Operator], Names]:
    """Request `a` for day 1 has had an attempt for each outcome."""

    def made(operator: Operator) -> Names:
        return {f"attempt{number}": name for number, name in enumerate(run_before(operator, *outcomes), 1)}

    return made


SITUATIONS = {
    **{
        f"another request has used the id, {outcome}: submit {option}": Situation(
            _ran(outcome),
            f"{_DAY_2} {option}",
            says=(
                "1 id was used by another request in the last 90 days. Give the new request an id of its own.",
                f"request a of sample ({outcome}) differs in: arguments",
                "Nothing was sent.",
            ),
            never=("sent: a", "line 1"),
            exit_code=3,
        )
        for outcome in ("SUCCEEDED", "RUNNING", "ABORTED")
        for option in ("", "--wait")
    },
    **{
        f"the same request has succeeded: submit {option}": Situation(
            _ran("SUCCEEDED"),
            f"{_DAY_1} {option}",
            says=("not sent: a  {attempt1}  SUCCEEDED.", _NOT_AGAIN, "slotkeeper request show a"),
            shows={"sent": [], "ran_before.0.status": "SUCCEEDED", "ran_before.0.execution": "{attempt1}"},
        )
        for option in ("", "--wait")
    },
    **{
        f"the same request has failed: submit {option}": Situation(
            _ran(job_run("no such month")),
            f"{_DAY_1} {option}",
            says=(
                "not sent: a  {attempt1}  FAILED: no such month.",
                _NOT_AGAIN,
                _REDRIVE,
                "1 of 1 request failed. List them with: slotkeeper dlq list failed",
            ),
            shows={"sent": [], "ran_before.0.reason": "no such month"},
            exit_code=1,
        )
        for option in ("", "--wait")
    },
    "the same request has failed, and succeeded as its next attempt": Situation(
        _ran(job_run("no such month"), "SUCCEEDED"),
        _DAY_1,
        says=("not sent: a  {attempt2}  SUCCEEDED.", _NOT_AGAIN),
        shows={"ran_before.0.execution": "{attempt2}"},
    ),
    "the same request is running": Situation(
        _ran("RUNNING"),
        _DAY_1,
        says=("not sent: a  {attempt1}  RUNNING.", _NOT_AGAIN, "slotkeeper request show a"),
        never=(_REDRIVE,),
    ),
    "the same request is running: --wait waits for it": Situation(
        _ran("RUNNING"),
        f"{_DAY_1} --wait --timeout 0",
        says=("not sent: a  {attempt1}  RUNNING.", "1 of 1 request had not ended after 0 s"),
        exit_code=1,
    ),
    "the same request was returned to the queue": Situation(
        _ran("RequestReturned"),
        _DAY_1,
        says=("not sent: a  sample-", "not started.", _NOT_AGAIN),
        shows={"ran_before.0.status": "not started"},
    ),
}
