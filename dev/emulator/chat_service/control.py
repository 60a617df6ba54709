"""Settings and outages over HTTP, for manual tests. The log does not contain these requests.

| route | body | does |
|---|---|---|
| `GET /_control/state` | | tokens (by number), `POST /auth` so far, outages, settings |
| `GET /_control/log` | | every request so far |
| `POST /_control/invalidate` | | invalidates the live token |
| `POST /_control/outage` | `{"route": "POST /auth", ...}` and the fields of `Outage` | lets that route fail |
| `POST /_control/end_outage` | `{"route"?}` | ends that outage, or all |
| `POST /_control/settings` | any of `auth_latency`, `answer_latency`, `auth_effect`, `forbidden` (list) | sets them |
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from .exchanges import Reply
from .outages import Outage
from .simulated_chat_api import ChatApi

PREFIX = "/_control/"
READS = ("state", "log")
WRITES = ("invalidate", "outage", "end_outage", "settings")


def answer(service: ChatApi, method: str, path: str, body: bytes) -> Reply:
    """Process one control request. A 400 states the error, a 404 lists the routes."""
    name = path.removeprefix(PREFIX)
    if method == "GET" and name in READS:
        return Reply(200, _state(service) if name == "state" else {"requests": [asdict(r) for r in service.log]})
    if method != "POST" or name not in WRITES:
        reads, writes = (", ".join(PREFIX + each for each in names) for names in (READS, WRITES))
        return Reply(404, {"error": f"no control {method} {path}; there are GET {reads} and POST {writes}"})
    try:
        given = json.loads(body or b"{}")
        if not isinstance(given, dict):
            raise ValueError("the body is not a JSON object")
        return Reply(200, _do(service, name, given))
    except (TypeError, ValueError, RecursionError) as error:
        return Reply(400, {"error": str(error)})


def _do(service: ChatApi, name: str, given: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "invalidate":
            return {"invalidated_at": service.invalidate()}
        case "outage":
            service.strike(str(given.pop("route", "")), Outage(**given))
        case "end_outage":
            service.end_outage(given.get("route"))
        case "settings":
            _set(service, given)
    return _state(service)


def _set(service: ChatApi, given: dict[str, Any]) -> None:
    """Set all of them, or none."""
    wrong = set(given) - {"auth_latency", "answer_latency", "auth_effect", "forbidden"}
    if wrong:
        raise ValueError(f"no setting {', '.join(sorted(wrong))}")
    latencies = [float(given[name]) for name in ("auth_latency", "answer_latency") if name in given]
    if not all(0 <= seconds < float("inf") for seconds in latencies):
        raise ValueError("a latency is a number of seconds, 0 or more")
    if given.get("auth_effect", "start") not in ("start", "end"):
        raise ValueError("auth_effect is start or end")
    texts = given.get("forbidden", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("forbidden is a list of texts")
    for name, value in given.items():
        setattr(service, name, {"forbidden": set}.get(name, str if name == "auth_effect" else float)(value))


def _state(service: ChatApi) -> dict[str, Any]:
    return {
        "auths": service.auths,
        "tokens": [asdict(life) for life in service.token_history],
        "outages": {route: asdict(outage) for route, outage in service.outages.items()},
        "auth_latency": service.auth_latency,
        "answer_latency": service.answer_latency,
        "auth_effect": service.auth_effect,
        "forbidden": sorted(service.forbidden),
    }
