"""Instances in a separate process, which can be killed and frozen like a container.

1. It sends "ready" and waits for a line.
2. Its instances get a token. If it stops between POST and store, it sends these words and waits for a line.
3. It sends tokens and events, waits for a line, and sends the answers to a message.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from dev.emulator.local_clients import local_client
from slotkeeper.chatbot.api import ChatApi
from slotkeeper.chatbot.credentials import Credentials
from slotkeeper.token import Timing
from tests.deployed.races.controlled_process import ControlledProcess, receive_line, send_line
from tests.deployed.races.shared_token import Instance, TokenSharers, simultaneously


@dataclass(frozen=True)
class Orders:
    dynamodb: str
    api: str
    client_id: str
    client_secret: str
    name: str
    timing: dict[str, float]
    skews: list[float]  # one instance each
    stops: bool  # once between POST and store


class InstanceProcess(ControlledProcess):
    """The parent's side."""

    def __init__(self, sharing: TokenSharers, skews: list[float] | None = None, *, stops: bool = False) -> None:
        service = sharing.service
        endpoint: str = sharing.dynamodb.meta.endpoint_url
        timing = asdict(sharing.timing)
        credentials = (service.client_id, service.client_secret)
        orders = Orders(endpoint, service.url, *credentials, sharing.name, timing, skews or [0.0], stops)
        super().__init__("tests.deployed.races.instance_process", asdict(orders))


def main() -> None:
    """The process's side."""
    orders = Orders(**json.loads(sys.argv[1]))
    dynamodb = local_client("dynamodb", orders.dynamodb, connections=len(orders.skews))
    instances = [_instance(orders, dynamodb, skew) for skew in orders.skews]
    _report_and_wait("ready")
    works: list[Callable[[], str]] = [instance.get for instance in instances]
    tokens = simultaneously(works)
    events = [type(event).__name__ for instance in instances for event in instance.events]
    _report_and_wait({"tokens": tokens, "events": events})
    send_line([instance.ask("hello") for instance in instances])


def _instance(orders: Orders, dynamodb: Any, skew: float) -> Instance:
    api = ChatApi(orders.api, lambda: Credentials(orders.client_id, orders.client_secret))
    stops = [orders.stops]

    def authenticate(seconds: float) -> str:
        token = api.authenticate(seconds)
        if stops and stops.pop():
            _report_and_wait("between POST and store")
        return token

    return Instance(dynamodb, orders.name, api, Timing(**orders.timing), skew=skew, authenticate=authenticate)


def _report_and_wait(what: Any) -> None:
    send_line(what)
    receive_line()


if __name__ == "__main__":
    main()
