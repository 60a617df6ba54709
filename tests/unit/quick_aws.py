"""The few calls that a worker with retries makes, answered in the process: ten times as fast as moto.

For tests that live through thousands of lives. It is no judge of expressions: it reads just the ones that the ledger
has, which moto and DynamoDB Local read in other tests.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

Item = dict[str, Any]
Answer = tuple[Any, dict[str, Any]]

TOKEN = re.compile(r"[#:]?\w+|<>|[=<(),]")
COMPARE: dict[str, Callable[[Any, Any], bool]] = {"=": operator.eq, "<>": operator.ne, "<": operator.lt}


def _http(status: int) -> Any:
    return SimpleNamespace(status_code=status)


class QuickAws:
    """Tables whose key is `request_id`, queues that take everything, one group of schedules, one parameter."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], Item] = {}
        self.schedules: dict[str, Item] = {}
        self.parameter = "{}"
        self._ids = itertools.count(1)

    def answer(self, client: Any) -> None:
        """Answers what this client calls from here on."""
        client.meta.events.register("before-call", self._answer)

    def _answer(self, model: Any, params: Any, **_: Any) -> Answer | None:
        told = json.loads(params.get("body") or "{}")
        if model.service_model.service_name == "scheduler":
            return self._schedule(model.name, params["url_path"].rpartition("/")[2], told)
        match model.name:
            case "UpdateItem" | "PutItem":
                return self._write(model.name, told)
            case "GetItem":
                found = self.items.get((told["TableName"], told["Key"]["request_id"]["S"]))
                return _http(200), {"Item": dict(found)} if found else {}
            case "GetParameter":
                return _http(200), {"Parameter": {"Value": self.parameter}}
            case "PutParameter":
                self.parameter = told["Value"]
            case "CreateQueue":
                return _http(200), {"QueueUrl": f"https://queue/{told['QueueName']}"}
            case "ChangeMessageVisibility":
                return None  # the worker's world answers
            case "SendMessage":
                return _http(200), {"MessageId": f"sent-{next(self._ids)}"}
        return _http(200), {}

    def _schedule(self, call: str, name: str, told: Item) -> Answer:
        match call:
            case "CreateSchedule" if name in self.schedules:
                return _http(409), {"Error": {"Code": "ConflictException", "Message": f"{name} exists"}}
            case "CreateSchedule":
                self.schedules[name] = told | {"Name": name}
            case "DeleteSchedule":
                del self.schedules[name]
            case "ListSchedules":
                return _http(200), {"Schedules": list(self.schedules.values())}
            case "GetSchedule":
                return _http(200), dict(self.schedules[name])
        return _http(200), {}

    def _write(self, call: str, told: Item) -> Answer:
        id_ = (told.get("Key") or told["Item"])["request_id"]
        found = self.items.get((told["TableName"], id_["S"]), {})
        expressions = _Expressions(told, found)
        if not expressions.condition():
            refusal = {"Code": "ConditionalCheckFailedException", "Message": "The conditional request failed"}
            return _http(400), {"Error": refusal, "Item": dict(found)}
        item = told["Item"] if call == "PutItem" else {**expressions.updated(), "request_id": id_}
        self.items[told["TableName"], id_["S"]] = item
        return _http(200), {"Attributes": dict(item)}


class _Expressions:
    def __init__(self, told: Item, item: Item) -> None:
        self._told = SimpleNamespace(condition=told.get("ConditionExpression"), update=told.get("UpdateExpression"))
        self._names = told.get("ExpressionAttributeNames", {})
        self._values = told.get("ExpressionAttributeValues", {})
        self._item = item
        self._tokens: list[str] = []

    def condition(self) -> bool:
        self._tokens = TOKEN.findall(self._told.condition or "")
        return not self._tokens or self._any()

    def updated(self) -> Item:
        item = dict(self._item)
        sets, _, removes = self._told.update.removeprefix("SET ").partition(" REMOVE ")
        for name, text in re.findall(r"([#\w]+) = (if_not_exists\(.*?\)|:\w+)", sets):
            self._tokens = TOKEN.findall(text)
            item[self._name(name)] = self._operand()
        for name in TOKEN.findall(removes):
            item.pop(self._name(name), None)
        return item

    def _any(self) -> bool:
        holds = [self._all()]
        while self._takes("OR"):
            holds.append(self._all())
        return any(holds)

    def _all(self) -> bool:
        holds = [self._term()]
        while self._takes("AND"):
            holds.append(self._term())
        return all(holds)

    def _term(self) -> bool:
        if self._takes("("):
            holds = self._any()
            self._next()
            return holds
        if self._takes("attribute_not_exists"):
            (name,) = self._arguments()
            return self._name(name) not in self._item
        left, sign = self._operand(), self._next()
        if sign == "IN":
            return left in [self._values[name] for name in self._arguments()]
        return _compared(left, sign, self._operand())

    def _operand(self) -> Item | None:
        token = self._next()
        if token == "if_not_exists":
            name, value = self._arguments()
            return self._item.get(self._name(name), self._values[value])
        return self._values[token] if token.startswith(":") else self._item.get(self._name(token))

    def _arguments(self) -> Iterator[str]:
        assert self._next() == "("
        while (token := self._next()) != ")":
            if token != ",":
                yield token

    def _name(self, token: str) -> str:
        return self._names[token] if token.startswith("#") else token

    def _next(self) -> str:
        return self._tokens.pop(0)

    def _takes(self, token: str) -> bool:
        return bool(self._tokens) and self._tokens[0] == token and bool(self._tokens.pop(0))


def _compared(left: Item | None, sign: str, right: Item | None) -> bool:
    if left is None or right is None or left.keys() != right.keys():
        return sign == "<>"
    ((kind, one),), ((_, other),) = left.items(), right.items()
    return COMPARE[sign](float(one), float(other)) if kind == "N" else COMPARE[sign](one, other)
