"""The run's report: records in, figures and checks out. Pure.

Keys of report.json (times in seconds; instants count from the first message sent):

| key | meaning |
|---|---|
| `parameters` | messages, senders, invalidations and auth_latency of this run |
| `started_at` | when the first message was sent, ISO 8601, UTC |
| `messages`, `answered` | messages sent, and those that have the API's answer to their own text |
| `asks` | how many of the answered ones made how many `POST /answers`, by number |
| `sent_again` | messages that their sender had to send more than once |
| `refused` | messages that were given up: message_id, and status and code of each try |
| `containers` | instances of the chatbot, by their cold starts; null if none reported one |
| `auths` | `POST /auth`: `cold` (the first token), `per_invalidation` (one number each), `total` |
| `take_overs` | expired locks that another instance took over, by the chatbot's metric |
| `token_waits` | count, p50, p99, max: from a message's first 401 to the ask with a token that is valid, by the API |
| `latency` | the same of whole messages, as their senders saw them: `all`, `at_once`, `renewed` (had a 401), `cold` |
| `stored` | the token's item at the end: which token, whether it is live, generation, locked |
| `total_seconds` | first message sent to last message ended |
| `checks` | name, ok (null: this run could not show it), and what was found, for each claim the run has to show |
| `ok` | no check fails |
| `tokens` | one entry a token: number, since, until (null: live), ended_by |
| `invalidations` | one entry each: at, token, healed_after (to the first answer with a newer token) |
| `auth_requests` | one entry a `POST /auth`: began, ended, status, token |
| `fates` | one entry a message: message_id, kind, sent, ended, tries, asks (each: began, ended, status, token) |
| `phases` | seconds each phase took |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from dev.emulator.chat_service import Request
from dev.scenarios.runner.checking import none_fails
from dev.scenarios.slots.figures import percentile

from . import checks
from .fates import Fate, auths, auths_by_cause, fates, healing
from .records import Records


@dataclass(frozen=True)
class Parameters:
    messages: int
    senders: int
    invalidations: int
    auth_latency: float


def build(parameters: Parameters, records: Records, phases: dict[str, float]) -> dict[str, Any]:
    """The report of one run, as it is written to report.json. At least one message must have been sent."""
    all_fates = fates(records)
    by_cause = auths_by_cause(records.log, records.invalidations)
    origin = min(fate.delivery.sent for fate in all_fates)
    containers = int(records.metrics["ColdStart"]) if "ColdStart" in records.metrics else None
    held_to = [
        checks.all_answered(all_fates, parameters.messages),
        checks.one_auth_each(by_cause, parameters.invalidations),
        checks.none_refused(records, all_fates),
        checks.three_asks_at_most(all_fates),
        checks.stored_is_live(records),
        checks.really_shared(containers, parameters.senders),
    ]
    return {
        "parameters": asdict(parameters),
        "started_at": datetime.fromtimestamp(origin, UTC).isoformat(timespec="milliseconds"),
        "messages": len(all_fates),
        "answered": sum(fate.delivery.answer is not None for fate in all_fates),
        "asks": _counted(len(fate.asks) for fate in all_fates if fate.delivery.answer is not None),
        "sent_again": sum(len(fate.delivery.tries) > 1 for fate in all_fates),
        "refused": [_refused(fate) for fate in all_fates if fate.delivery.answer is None],
        "containers": containers,
        "auths": {
            "cold": len(by_cause[0]),
            "per_invalidation": [len(requests) for requests in by_cause[1:]],
            "total": len(auths(records.log)),
        },
        "take_overs": int(records.metrics.get("TokenTakeOvers", 0)),
        "token_waits": _spread([fate.wait for fate in all_fates if fate.wait is not None]),
        "latency": {
            "all": _spread([fate.latency for fate in all_fates]),
            **{
                kind: _spread([fate.latency for fate in all_fates if fate.kind == kind])
                for kind in ("at_once", "renewed", "cold")
            },
        },
        "stored": asdict(records.stored),
        "total_seconds": _round(max(fate.delivery.ended for fate in all_fates) - origin),
        "checks": [asdict(check) for check in held_to],
        "ok": none_fails(held_to),
        "tokens": [
            asdict(life) | {"since": _round(life.since - origin), "until": _since(life.until, origin)}
            for life in records.tokens
        ],
        "invalidations": [
            {"at": _round(each.at - origin), "token": each.token, "healed_after": _since(healing(records, each), 0.0)}
            for each in records.invalidations
        ],
        "auth_requests": [_request(request, origin) for request in auths(records.log)],
        "fates": [_fate(fate, origin) for fate in all_fates],
        "phases": {name: round(seconds, 2) for name, seconds in phases.items()},
    }


def _counted(numbers: Any) -> dict[str, int]:
    return {str(number): count for number, count in sorted(Counter(numbers).items())}


def _round(value: float) -> float:
    return round(value, 3)


def _since(instant: float | None, origin: float) -> float | None:
    return None if instant is None else _round(instant - origin)


def _spread(values: Sequence[float]) -> dict[str, float | int | None]:
    shares = {"p50": percentile(values, 0.5), "p99": percentile(values, 0.99), "max": max(values, default=None)}
    return {"count": len(values), **{name: _since(value, 0.0) for name, value in shares.items()}}


def _request(request: Request, origin: float) -> dict[str, Any]:
    return {
        "began": _round(request.began - origin),
        "ended": _since(request.ended, origin),
        "status": request.status,
        "token": request.token,
    }


def _refused(fate: Fate) -> dict[str, Any]:
    tries = [{"status": each.status, "code": each.code} for each in fate.delivery.tries]
    return {"message_id": fate.delivery.message.message_id, "tries": tries}


def _fate(fate: Fate, origin: float) -> dict[str, Any]:
    return {
        "message_id": fate.delivery.message.message_id,
        "kind": fate.kind,
        "sent": _round(fate.delivery.sent - origin),
        "ended": _round(fate.delivery.ended - origin),
        "tries": len(fate.delivery.tries),
        "asks": [_request(ask, origin) for ask in fate.asks],
    }
