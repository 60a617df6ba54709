"""The report of `make run-chatbot`: its figures, checks and tables.

Keys of report.json next to those of dev/scenarios/runner/scenario.py (times in seconds):

| key | meaning |
|---|---|
| `answered` | messages answered |
| `containers` | instances of the chatbot, by their cold starts; null if none was reported |
| `auths` | number of `POST /auth`: `cold` (first token), `per_invalidation` (a list), `total` |
| `token_waits` | count, p50, p99, max: from a message's first 401 to its request with a valid token, by the API |
| `stored` | the token's item at the end: token (its number), live, generation, locked |
| `total_seconds` | first message sent to last message ended |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from dev.emulator.chat_service import Request, answer_to
from dev.emulator.live_view import counted
from dev.scenarios.runner.checks import check, check_none
from dev.scenarios.runner.scenario import Outcome, Run, figure_table, since, spread_text
from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.intervals import spread

from .token_records import MessageOutcome, Records, message_outcomes

# The cached token, the stored one and the new one: after a long idle time of a container the first two are invalid.
MAX_ASKS = 3
Outcomes = Sequence[MessageOutcome]


@dataclass(frozen=True)
class Parameters:
    messages: int
    senders: int
    invalidations: int
    auth_latency: float


def build(parameters: Parameters, records: Records, run: Run) -> Outcome:
    """The report of one run. At least one message must have been sent."""
    outcomes = message_outcomes(records)
    by_cause = records.auths_by_cause
    origin = min(each.delivery.sent for each in outcomes)
    containers = int(records.metrics["ColdStart"]) if "ColdStart" in records.metrics else None
    checks = [
        all_answered(outcomes, parameters.messages),
        one_auth_each(by_cause, parameters.invalidations),
        auths_accepted(records),
        three_asks_at_most(outcomes),
        stored_is_live(records),
        really_shared(containers, parameters.senders),
    ]
    figures = {
        "answered": sum(each.delivery.answer is not None for each in outcomes),
        "containers": containers,
        "auths": {
            "cold": len(by_cause[0]),
            "per_invalidation": [len(requests) for requests in by_cause[1:]],
            "total": len(records.auths),
        },
        "token_waits": spread([each.wait for each in outcomes if each.wait is not None], p50=0.5, p99=0.99),
        "stored": asdict(records.stored),
        "total_seconds": since(max(each.delivery.ended for each in outcomes), origin),
    }
    report = run.report(parameters, origin, checks, figures)
    return Outcome(report, tables(report))


def tables(report: Mapping[str, Any]) -> list[Table]:
    auths, containers = report["auths"], report["containers"]
    rows = {
        "messages answered": f"{report['answered']} of {report['parameters']['messages']}",
        "containers of the bot": "unknown" if containers is None else containers,
        "POST /auth": f"{auths['cold']} at first, then {auths['per_invalidation']} for the invalidations",
        "wait for a new token": spread_text(report["token_waits"]),
        "total time": f"{report['total_seconds']:.2f} s",
    }
    return [figure_table("The run, by the API's log and its senders' clocks", rows)]


# ------------------------------------------------------------------------------------------------------------- checks


def all_answered(outcomes: Outcomes, sent: int) -> CheckResult:
    """Every message has the API's answer to its text."""
    problems = {
        "not answered": [f"{o.message_id} ({_refusal(o)})" for o in outcomes if o.delivery.answer is None],
        "answered wrongly": [
            o.message_id
            for o in outcomes
            if o.delivery.answer is not None and o.delivery.answer != answer_to(o.delivery.message.text)
        ],
        "not sent": [str(sent - len(outcomes))] if len(outcomes) < sent else [],
    }
    return check_none("every message is answered", problems, f"{len(outcomes)} of {sent}")


def _refusal(outcome: MessageOutcome) -> str:
    return f"{outcome.delivery.status or 'no answer'} {outcome.delivery.code or ''}".strip()


def one_auth_each(by_cause: Sequence[Sequence[Request]], invalidations: int) -> CheckResult:
    """T1: one `POST /auth` for the first token and for each invalidation, independent of the number of instances."""
    first, *others = (len(requests) for requests in by_cause)
    wrong = [f"{first} for the first token"] if first != 1 else []
    wrong += [f"{count} after invalidation {i}" for i, count in enumerate(others, 1) if count != 1]
    missing = [f"{len(others)} of {invalidations}, since the token never recovered"]
    problems = {"POST /auth": wrong, "invalidations made": missing if len(others) < invalidations else []}
    finding = f"one for the first token and one for each of {counted(len(others), 'invalidation')}"
    if not invalidations:
        finding = "one for the first token; the run had no invalidations"
    return check_none("one POST /auth per invalidation", problems, finding, shown=invalidations > 0)


def auths_accepted(records: Records) -> CheckResult:
    """No instance fetches a token with wrong credentials, or too often."""
    refused = [str(request.status or "no answer") for request in records.auths if request.status != 200]
    return check_none("the API accepts each POST /auth", {"answered": refused}, f"{len(records.auths)} of them")


def three_asks_at_most(outcomes: Outcomes) -> CheckResult:
    """One request for each token that a message can meet. Without coordination there is no bound."""
    more = [f"{o.message_id} ({len(o.asks)})" for o in outcomes if len(o.asks) > MAX_ASKS]
    most = max((len(o.asks) for o in outcomes), default=0)
    name = "no message asks the API more than three times"
    return check_none(name, {"more requests": more}, f"at most {counted(most, 'time')}")


def stored_is_live(records: Records) -> CheckResult:
    """T3: the token that all instances will read is the one that the API accepts."""
    stored = records.stored
    token = f"token {stored.token}" if stored.token is not None else "none of the API's tokens"
    problems = {
        "not live": [token] if not stored.live else [],
        "wrong generation": [str(stored.generation)] if stored.generation != len(records.tokens) else [],
        "not released": ["the refresh lock"] if stored.locked else [],
    }
    finding = f"{token} of {len(records.tokens)}, generation {stored.generation}, unlocked"
    return check_none("the stored token is the live one", problems, finding)


def really_shared(containers: int | None, senders: int) -> CheckResult:
    """A single container would pass all other claims."""
    name = "several containers share the token"
    if senders == 1:
        return check(name, None, "one sender uses one container")
    if containers is None:
        return check(name, False, "no container reported a cold start")
    return check(name, containers > 1, f"{counted(containers, 'container')} of the chatbot")
