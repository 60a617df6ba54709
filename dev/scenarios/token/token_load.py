"""The load of `make run-chatbot`: messages to the deployed chatbot, whose token is invalidated repeatedly."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.chat_service import ChatService, Request, TokenLife, answer_to
from dev.emulator.chatbot_client import UNTHROTTLED, give_credentials, signing_key
from dev.emulator.live_view import Snapshot, counted, watch
from dev.scenarios.runner.checks import check, check_none
from dev.scenarios.runner.scenario import Outcome, Run, Scenario, since
from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.intervals import spread

from .messages import ChatbotClient, Delivery, Rounds

ITEM = "chatbot"  # the key of the token that all instances share
# Seconds to wait for the first container: a machine with few processors starts all of them equally slowly.
FIRST_CONTAINER = 240.0
# The cached token, the stored one and the new one: after a long idle time of a container the first two are invalid.
MAX_ASKS = 3


@dataclass(frozen=True)
class Parameters:
    messages: int
    senders: int
    invalidations: int
    auth_latency: float


@dataclass(frozen=True)
class Stored:
    """The token's item at the end. `token`: the number of the API's token, never the token itself."""

    token: int | None
    live: bool
    generation: int
    locked: bool


@dataclass(frozen=True)
class Records:
    """The senders' deliveries, the API's log, the token's item, and the containers that have started. Epoch seconds."""

    deliveries: Sequence[Delivery]
    log: Sequence[Request]
    tokens: Sequence[TokenLife]
    stored: Stored
    containers: int

    @property
    def auths(self) -> list[Request]:
        """Every `POST /auth`."""
        return [request for request in self.log if (request.method, request.path) == ("POST", "/auth")]

    @property
    def auths_by_cause(self) -> list[list[Request]]:
        """Groups: the `POST /auth` before the first invalidation, and those between each one and the next."""
        instants = [life.until for life in self.tokens if life.ended_by == "invalidate" and life.until is not None]
        groups: list[list[Request]] = [[] for _ in range(len(instants) + 1)]
        for request in self.auths:
            groups[bisect_right(instants, request.began)].append(request)
        return groups

    @cached_property
    def asks(self) -> dict[str, list[Request]]:
        """The `POST /answers` of each message, by its id."""
        ids = {each.text: each.message_id for each in self.deliveries}
        asks: dict[str, list[Request]] = {name: [] for name in ids.values()}
        for request in self.log:
            if request.text in ids:
                asks[ids[request.text]].append(request)
        return asks


def scenario(service: ChatService) -> Scenario:
    """What `make run-chatbot` starts."""
    # 0: the interval limits refreshes for requests that are always refused. Here it would be measured as a wait.
    stack = {"ChatApiUrl": service.url, "TokenMinRefreshSeconds": "0", **UNTHROTTLED}
    return Scenario(Path("build/run-chatbot"), stack)


def converse(aws: EmbeddedAws, service: ChatService, parameters: Parameters, run: Run) -> Records:
    """Send the messages, and wait for each answer; return the records. Raises Stalled."""
    give_credentials(aws, service.client_id, service.client_secret)
    client, senders = ChatbotClient(str(aws.chatbot_url), signing_key(aws)), parameters.senders
    with run.phase("containers", f"start {senders} containers, about a second of a processor each"):
        warm = [Thread(target=client.warm_up, daemon=True) for _ in range(senders)]
        for each in warm:
            each.start()
        watch(run.console, lambda elapsed: warming_up(warm, elapsed), stalled_after=FIRST_CONTAINER)
    rounds = Rounds(parameters.messages, senders, parameters.invalidations, client.deliver, service.invalidate)

    def progress(elapsed: float) -> Snapshot:
        ended = rounds.deliveries()
        answered = sum(each.answer is not None for each in ended)
        counts = {"answered": answered, "refused": len(ended) - answered}
        counts |= {"invalidations": rounds.invalidations, "POST /auth": service.auths}
        return Snapshot(elapsed, len(ended) == parameters.messages, len(ended), parameters.messages, counts=counts)

    with run.phase("run", f"send {counted(parameters.messages, 'message')}"), rounds.sending():
        watch(run.console, progress, "Slotkeeper: one token")
    with run.phase("collect", "collect the records"):
        stored = read_stored(aws.client("dynamodb"), aws.outputs["TokenTableName"], service)
        return Records(rounds.deliveries(), service.log, service.token_history, stored, cold_starts(aws))


def warming_up(requests: Sequence[Thread], elapsed: float) -> Snapshot:
    warm, count = sum(not each.is_alive() for each in requests), len(requests)
    return Snapshot(elapsed, warm == count, warm, count, gauges={"containers": (warm, count)})


def read_stored(dynamodb: Any, table: str, service: ChatService) -> Stored:
    """Read the item consistently. Raises LookupError without an item."""
    item = dynamodb.get_item(TableName=table, Key={"token_name": {"S": ITEM}}, ConsistentRead=True).get("Item")
    if item is None:
        raise LookupError(f"table {table} has no item {ITEM}: no instance of the chatbot has stored a token")
    token, generation = item.get("access_token", {}).get("S", ""), item.get("generation", {"N": "0"})["N"]
    return Stored(service.number_of(token), service.is_live(token), int(generation), "refresh_lock" in item)


def cold_starts(aws: EmbeddedAws) -> int:
    """The number of containers of the chatbot, each of which has logged the metric of its start once."""
    function = aws.client("lambda").get_function_configuration(FunctionName=aws.outputs["ChatbotFunctionName"])
    pages = aws.client("logs").get_paginator("filter_log_events")
    listed = pages.paginate(logGroupName=function["LoggingConfig"]["LogGroup"], filterPattern='"ColdStart"')
    return sum(len(page["events"]) for page in listed)


def build(parameters: Parameters, records: Records) -> Outcome:
    """The report of one run. At least one message must have been sent."""
    sent, stored = records.deliveries, records.stored
    origin = min(each.sent for each in sent)
    first, *others = map(len, records.auths_by_cause)
    checks = [
        all_answered(records, parameters.messages),
        one_auth_each(first, others, parameters.invalidations),
        auths_accepted(records),
        three_asks_at_most(records),
        stored_is_live(records),
        really_shared(records.containers, parameters.senders),
    ]
    waits = [wait for asks in records.asks.values() if (wait := wait_for_token(asks)) is not None]
    figures = {
        "messages answered": sum(each.answer is not None for each in sent),
        "containers of the bot": records.containers,
        "POST /auth": f"{first} at first, then {others} for the invalidations",
        "wait for a new token": spread(waits, p50=0.5, p99=0.99),
        "stored token": f"number {stored.token}, generation {stored.generation}",
        "total time": since(max(each.ended for each in sent), origin),
    }
    return Outcome(parameters, origin, checks, figures)


def wait_for_token(asks: Sequence[Request]) -> float | None:
    """Seconds from a message's first 401 to its request with a valid token. None without either of them.

    A message that meets two invalid tokens, the cached and the stored one, has waited once.
    """
    rejected = next((ask.ended for ask in asks if ask.status == 401), None)
    admitted = [ask.began for ask in asks if ask.status != 401 and rejected and ask.began >= rejected]
    return admitted[0] - rejected if rejected and admitted else None


# ------------------------------------------------------------------------------------------------------------- checks


def all_answered(records: Records, sent: int) -> CheckResult:
    """Every message has the API's answer to its text."""
    of = records.deliveries
    problems = {
        "not answered": [f"{e.message_id} ({e.status or 'no answer'} {e.code or ''})" for e in of if e.answer is None],
        "answered wrongly": [e.message_id for e in of if e.answer is not None and e.answer != answer_to(e.text)],
        "not sent": [str(sent - len(of))] if len(of) < sent else [],
    }
    return check_none("every message is answered", problems, f"{len(of)} of {sent}")


def one_auth_each(first: int, others: Sequence[int], invalidations: int) -> CheckResult:
    """T1: one `POST /auth` for the first token and for each invalidation, independent of the number of instances."""
    wrong = [f"{first} for the first token"] if first != 1 else []
    wrong += [f"{count} after invalidation {i}" for i, count in enumerate(others, 1) if count != 1]
    missing = [f"{len(others)} of {invalidations}, since the token never recovered"]
    problems = {"POST /auth": wrong, "invalidations made": missing if len(others) < invalidations else []}
    finding = f"one for the first token and one for each of {counted(len(others), 'invalidation')}"
    return check_none("one POST /auth per invalidation", problems, finding, shown=invalidations > 0)


def auths_accepted(records: Records) -> CheckResult:
    """No instance fetches a token with wrong credentials, or too often."""
    refused = [str(request.status or "no answer") for request in records.auths if request.status != 200]
    return check_none("the API accepts each POST /auth", {"answered": refused}, f"{len(records.auths)} of them")


def three_asks_at_most(records: Records) -> CheckResult:
    """One request for each token that a message can meet. Without coordination there is no bound."""
    more = [f"{name} ({len(asks)})" for name, asks in records.asks.items() if len(asks) > MAX_ASKS]
    most = max(map(len, records.asks.values()), default=0)
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


def really_shared(containers: int, senders: int) -> CheckResult:
    """A single container would pass all other claims. One sender uses one container."""
    finding = f"{counted(containers, 'container')} of the chatbot"
    return check("several containers share the token", None if senders == 1 else containers > 1, finding)
