"""The load of `make run-chatbot`: messages to the deployed chatbot, whose token is invalidated repeatedly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from dev.emulator.aws import EmbeddedAws
from dev.emulator.chat_service import ChatService, Request, answer_to
from dev.emulator.chatbot_client import UNTHROTTLED, give_credentials, signing_key
from dev.emulator.live_view import Snapshot, counted, watch
from dev.scenarios.runner.checks import check, check_none
from dev.scenarios.runner.scenario import Outcome, Run, Scenario, since
from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.intervals import spread

from . import token_records
from .messages import ChatbotClient, Rounds
from .token_records import MessageOutcome, Records, message_outcomes

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


def scenario(service: ChatService) -> Scenario:
    """What `make run-chatbot` starts."""
    # 0: the interval limits refreshes for requests that are always refused. Here it would be measured as a wait.
    stack = {"ChatApiUrl": service.url, "TokenMinRefreshSeconds": "0", **UNTHROTTLED}
    return Scenario(Path("build/run-chatbot"), stack)


def converse(aws: EmbeddedAws, service: ChatService, parameters: Parameters, run: Run) -> Records:
    """Send the messages, and wait for each answer; what they have left. Raises Stalled."""
    give_credentials(aws, service.client_id, service.client_secret)
    client, senders = ChatbotClient(str(aws.chatbot_url), signing_key(aws)), parameters.senders
    with run.phase("containers", f"start {senders} containers, about a second of a processor each"):
        warm = [Thread(target=client.warm_up, daemon=True) for _ in range(senders)]
        for each in warm:
            each.start()
        watch(run.console, lambda elapsed: warming_up(warm, elapsed), stalled_after=FIRST_CONTAINER)
    rounds = Rounds(parameters.messages, senders, parameters.invalidations, client.deliver, service.invalidate)
    times = counted(parameters.invalidations, "time")
    with (
        run.phase("run", f"send {counted(parameters.messages, 'message')}, invalidate the token {times}"),
        rounds.sending(),
    ):
        watch(
            run.console,
            lambda elapsed: progress(rounds, service, parameters.messages, elapsed),
            "Slotkeeper: one token",
        )
    with run.phase("collect", "collect the records"):
        outputs = aws.outputs
        function = aws.client("lambda").get_function_configuration(FunctionName=outputs["ChatbotFunctionName"])
        stored = token_records.read_stored(aws.client("dynamodb"), outputs["TokenTableName"], service)
        metrics = token_records.read_metrics(aws.client("logs"), function["LoggingConfig"]["LogGroup"])
        return Records(rounds.deliveries(), service.log, service.token_history, stored, metrics)


def warming_up(requests: Sequence[Thread], elapsed: float) -> Snapshot:
    warm, count = sum(not each.is_alive() for each in requests), len(requests)
    return Snapshot(elapsed, warm == count, warm, count, gauges={"containers": (warm, count)})


def progress(rounds: Rounds, service: ChatService, messages: int, elapsed: float) -> Snapshot:
    ended = rounds.deliveries()
    answered = sum(each.answer is not None for each in ended)
    counts = {
        "answered": answered,
        "refused": len(ended) - answered,
        "invalidations": rounds.invalidations,
        "POST /auth": service.auths,
    }
    return Snapshot(elapsed, len(ended) == messages, len(ended), messages, counts=counts)


def build(parameters: Parameters, records: Records) -> Outcome:
    """The report of one run. At least one message must have been sent."""
    outcomes = message_outcomes(records)
    by_cause, stored = records.auths_by_cause, records.stored
    origin = min(each.delivery.sent for each in outcomes)
    containers = int(records.metrics["ColdStart"]) if "ColdStart" in records.metrics else None
    first, *others = (len(requests) for requests in by_cause)
    checks = [
        all_answered(outcomes, parameters.messages),
        one_auth_each(by_cause, parameters.invalidations),
        auths_accepted(records),
        three_asks_at_most(outcomes),
        stored_is_live(records),
        really_shared(containers, parameters.senders),
    ]
    figures = {
        "messages answered": sum(each.delivery.answer is not None for each in outcomes),
        "containers of the bot": "unknown" if containers is None else containers,
        "POST /auth": f"{first} at first, then {others} for the invalidations",
        "wait for a new token": spread([each.wait for each in outcomes if each.wait is not None], p50=0.5, p99=0.99),
        "stored token": f"number {stored.token}, generation {stored.generation}",
        "total time": since(max(each.delivery.ended for each in outcomes), origin),
    }
    return Outcome(parameters, origin, checks, figures)


def all_answered(outcomes: Sequence[MessageOutcome], sent: int) -> CheckResult:
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


def three_asks_at_most(outcomes: Sequence[MessageOutcome]) -> CheckResult:
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
