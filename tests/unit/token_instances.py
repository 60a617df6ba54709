"""An API with one live token, and instances that share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slotkeeper.token import AuthenticationRefused, SharedToken, Timing, TokenEvent, TokenTable, Unauthorized

TABLE = "tokens"
NAME = "bot"
NOW = 1_800_000_000.0
# For tests that wait for the end of these times. They are many times the time of a call on a busy machine.
BRIEF = Timing(api=1.0, store=0.5, clock_skew=0.0, min_interval=0.0)
QUICK = Timing(api=2.0, store=1.0, clock_skew=0.0, min_interval=0.0)


class VirtualTime:
    """A monotonic clock that only `sleep` advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Api:
    """An API with one live token: each `authenticate` invalidates the token before."""

    def __init__(self) -> None:
        self.live = ""
        self.posts = 0
        self.down = ""
        self.before_answer: Callable[[], None] = lambda: None

    def authenticate(self, _seconds: float) -> str:
        self.posts += 1
        if self.down:
            raise AuthenticationRefused(self.down)
        token = self.live = f"token-{self.posts}"
        self.before_answer()
        return token

    def accepts(self, token: str, _seconds: float = 0.0) -> bool:
        return token == self.live

    def ask(self, token: str) -> str:
        if token != self.live:
            raise Unauthorized
        return "answer"


class Instances:
    """Creates the token of several containers, each with its own cache, over one table."""

    def __init__(self, dynamodb: Any, api: Api) -> None:
        self.dynamodb = dynamodb
        self.api = api
        self.time = NOW
        self.table = TokenTable(dynamodb, TABLE)
        self.events: list[TokenEvent] = []

    def new(self, **changes: Any) -> SharedToken:
        arguments = {
            "authenticate": self.api.authenticate,
            "timing": QUICK,
            "report": self.events.append,
            "clock": lambda: self.time,
            **changes,
        }
        return SharedToken(self.table, NAME, **arguments)

    def put(self, **attributes: Any) -> None:
        """Replace the item."""
        self.dynamodb.put_item(TableName=TABLE, Item={"token_name": {"S": NAME}, **attributes})

    def raw_item(self) -> dict[str, Any]:
        key = {"token_name": {"S": NAME}}
        return self.dynamodb.get_item(TableName=TABLE, Key=key, ConsistentRead=True).get("Item", {})


def lock_of_another(instances: Instances, expires: float, **more: Any) -> None:
    """Replace the item by one that a dead instance has locked."""
    lock = {"M": {"release_code": {"S": "other"}, "expires": {"N": str(expires)}}}
    instances.put(refresh_lock=lock, **more)
