"""The janitor's runs in virtual time: calls take time, are throttled, or get no answer.

The worlds of slots_world.py try every order of events with calls that take no time. Here there is one order, and each
call and page takes as long as in AWS. Lambda stops a run at its timeout. A stopped run keeps its lease, and its
container's memory is lost. Nothing really sleeps.

The services answer from dictionaries, for tens of thousands of processes. They evaluate only the conditions that the
janitor uses.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError
from greenlet import getcurrent, greenlet

from slotkeeper.slots import protocol
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.janitor import Janitor, RunLease
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import FailedRequestQueue, RequestQueue
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.settlement import Settlement, SettlementTable
from slotkeeper.slots.work import MARKER, Children, GlueRuns
from tests.support.client_configs import client_configs

EPOCH = 1_700_000_000  # seconds since the epoch at `Account.now` 0
PERIOD, TIMEOUT = 60, 120  # seconds, as in template.yaml
GRACE, LOOK_GAP = 120, 30
# Seconds, assumed: for a call inside a Region, and for a page of a long list.
CALL_SECONDS, PAGE_SECONDS = 0.010, 0.100
_LISTS = ("scan", "list_executions", "get_job_runs")
# Bucket size and calls a second. Step Functions guide, "Service quotas", "Quotas related to API action throttling", for
# the Regions with the lower quotas. Glue publishes none for GetJobRuns: this one is assumed.
QUOTAS = {"describe_execution": (250, 10.0), "list_executions": (100, 2.0), "get_job_runs": (20, 10.0)}


class _Stopped(BaseException):
    """Lambda stops the invocation."""


class _Bucket:
    def __init__(self, size: float, rate: float) -> None:
        self._size, self._rate, self._level, self._at = size, rate, size, 0.0

    def take(self, now: float) -> bool:
        self._level = min(self._size, self._level + (now - self._at) * self._rate)
        self._at = now
        if self._level < 1:
            return False
        self._level -= 1
        return True


class Account:
    """The services in one account, and the clock.

    Attributes:
        items, settled: the slot table and the settlement table.
        executions: name -> (status, start, stop), seconds.
        runs: job -> (finished runs a second, [(start, execution, state)]).
        unanswered: operation -> until when it gets no answer.
        freed, kept: execution -> when its slot was freed, and when its request was kept.
        woken: receipt handle -> when its message was made visible.
    """

    def __init__(self, quotas: dict[str, tuple[float, float]] | None = None) -> None:
        self.now = 0.0
        self.items: dict[str, dict[str, Any]] = {}
        self.settled: dict[str, dict[str, Any]] = {}
        self.executions: dict[str, tuple[str, float, float | None]] = {}
        self.by_status: dict[str, list[str]] = defaultdict(list)  # in the order of their ends
        self.runs: dict[str, tuple[float, list[tuple[float, str, str]]]] = {}
        self.handles: set[str] = set()
        self.unanswered: dict[str, float] = {}
        self.freed: dict[str, float] = {}
        self.kept: dict[str, list[float]] = defaultdict(list)
        self.woken: dict[str, float] = {}
        self.calls: Counter[str] = Counter()
        self.random = Random(1)
        self._quotas = {operation: _Bucket(*quota) for operation, quota in (quotas or {}).items()}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, moment: float, happen: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, happen))

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        while self._events and self._events[0][0] <= until and not done():
            moment, _, happen = heapq.heappop(self._events)
            self.now = max(self.now, moment)
            happen()

    def throttles(self, operation: str) -> bool:
        bucket = self._quotas.get(operation)
        return bucket is not None and not bucket.take(self.now)

    # Parts of a scene ----------------------------------------------------------------------------------------------

    def process(self, name: str, limit: int = 500, waiting: str = "", dead: int = 0, job: str = "job") -> None:
        """Add a process. The workflows of its `dead` holders were confirmed at -900 and aborted at 0."""
        held = [execution_name(name, str(number), 1) for number in range(dead)]
        item: dict[str, Any] = {
            "process_name": {"S": name},
            "slot_limit": {"N": str(limit)},
            "slots_in_use": {"N": str(dead)},
            "holders": {"M": {each: _holder(-900, job) for each in held}},
            "waiting": _registered(waiting) if waiting else {"M": {}},
            "target": {"S": job},
        }
        self.items[name] = item
        for each in held:
            self.close(each, -900, 0)

    def wait(self, name: str, handle: str) -> None:
        """Add a waiting request whose wake was lost."""
        self.items[name]["waiting"] = _registered(handle)
        self.handles.add(handle)

    def close(self, name: str, started: float, stopped: float) -> None:
        self.executions[name] = ("ABORTED", started, stopped)
        self.by_status["ABORTED"].append(name)

    def dead(self) -> set[str]:
        """The names of all holders; all of their workflows have ended."""
        return {name for item in self.items.values() for name in item["holders"]["M"]}

    # Operations ----------------------------------------------------------------------------------------------------

    def scan(self, given: dict[str, Any]) -> dict[str, Any]:
        items, at = list(self.items.values()), given.get("next", 0)
        return _page("Items", items[at : at + 1000], at, len(items))

    def get_item(self, given: dict[str, Any]) -> dict[str, Any]:
        item = self.items.get(given["Key"]["process_name"]["S"])
        return {"Item": item} if item else {}

    def update_item(self, given: dict[str, Any]) -> dict[str, Any]:
        item = self.items[given["Key"]["process_name"]["S"]]
        me, values = given.get("ExpressionAttributeNames", {}).get("#me"), given["ExpressionAttributeValues"]
        holders, condition = item["holders"]["M"], given["ConditionExpression"]
        unchanged = ":seen" in values and holders.get(me) == values[":seen"]
        registered = item["waiting"]["M"].get("normal", {"M": {}})["M"].get("receipt_handle")
        if not (unchanged if ":seen" in condition else registered == values.get(":handle")):
            raise refusal("ConditionalCheckFailedException", Item=item)
        match given["UpdateExpression"]:
            case protocol.RELEASE_UPDATE:
                del holders[me]
                item["slots_in_use"] = {"N": str(len(holders))}
                self.freed[me] = self.now
            case "SET holders.#me.quiet_since = :now":
                # A new map, since earlier answers contain the old one.
                holders[me] = {"M": holders[me]["M"] | {"quiet_since": values[":now"]}}
            case "SET waiting.normal = :entry":
                item["waiting"] = {"M": {"normal": values[":entry"]}}
            case other:
                raise AssertionError(other)
        return {}

    def batch_get_item(self, given: dict[str, Any]) -> dict[str, Any]:
        ((table, wanted),) = given["RequestItems"].items()
        names = (key["execution_name"]["S"] for key in wanted["Keys"])
        return {"Responses": {table: [dict(self.settled[name]) for name in names if name in self.settled]}}

    def put_item(self, given: dict[str, Any]) -> dict[str, Any]:
        item, condition = given["Item"], given.get("ConditionExpression", "")
        name, values = item["execution_name"]["S"], given.get("ExpressionAttributeValues", {})
        there = self.settled.get(name)
        if there is not None and condition:
            refused = {
                "code = :code": there.get("code") != values.get(":code"),
                "attribute_not_exists(settled_at)": "settled_at" in there,
            }.get(condition)
            if refused is None:  # a lease or a claim, taken over once it has ended
                until, now = there.get("held_until") or there.get("claimed_until"), int(values[":now"]["N"])
                refused = "settled_at" in there or until is None or int(until["N"]) >= now
            if refused:
                raise refusal("ConditionalCheckFailedException", Item=dict(there))
        self.settled[name] = dict(item)
        return {}

    def describe_execution(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given["executionArn"].rpartition(":")[2]
        if name not in self.executions:
            raise refusal("ExecutionDoesNotExist")
        return {"executionArn": given["executionArn"], "input": "{}", **self._listed(name)}

    def list_executions(self, given: dict[str, Any]) -> dict[str, Any]:
        names, at = self.by_status[given["statusFilter"]], given.get("next", 0)
        page = names[max(0, len(names) - at - 1000) : len(names) - at][::-1]
        return _page("executions", [self._listed(name) for name in page], at, len(names))

    def get_job_runs(self, given: dict[str, Any]) -> dict[str, Any]:
        rate, known = self.runs.get(given["JobName"], (0.0, []))
        at = given.get("next", 0)
        if not rate:
            return {"JobRuns": [_run(*each) for each in known]}
        newest, oldest = self.now - at / rate, self.now - (at + 200) / rate
        others = [(newest, "", "SUCCEEDED"), (oldest, "", "SUCCEEDED")]
        mine = [each for each in known if oldest < each[0] <= newest]
        return {"JobRuns": [_run(*each) for each in [*others, *mine]], "next": at + 200}

    def batch_stop_job_run(self, _: dict[str, Any]) -> dict[str, Any]:
        return {}

    def change_message_visibility(self, given: dict[str, Any]) -> dict[str, Any]:
        if given["ReceiptHandle"] not in self.handles:
            raise refusal("InvalidParameterValue")
        self.woken.setdefault(given["ReceiptHandle"], self.now)
        return {}

    def change_message_visibility_batch(self, given: dict[str, Any]) -> dict[str, Any]:
        failed = []
        for entry in given["Entries"]:
            handle = entry["ReceiptHandle"]
            if handle in self.handles:
                self.woken.setdefault(handle, self.now)
            else:
                failed.append({"Id": entry["Id"], "Code": "InvalidParameterValue", "SenderFault": True})
        return {"Failed": failed}

    def send_message(self, given: dict[str, Any]) -> dict[str, Any]:
        self.kept[given["MessageAttributes"]["execution_name"]["StringValue"]].append(self.now)
        return {}

    def _listed(self, name: str) -> dict[str, Any]:
        status, started, stopped = self.executions[name]
        entry = {"name": name, "status": status, "startDate": _date(started)}
        return entry | ({} if stopped is None else {"stopDate": _date(stopped)})


@dataclass
class _Client:
    """A client with botocore's attempts, waits between them, and read timeouts."""

    account: Account
    config: Any
    sleep: Callable[[float], None]

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        return lambda **given: self.ask(operation, given)

    def ask(self, operation: str, given: dict[str, Any]) -> Any:
        account, attempts = self.account, self.config.retries["total_max_attempts"]
        for attempt in range(attempts):
            account.calls[operation] += 1
            if account.now < account.unanswered.get(operation, -1.0):
                self.sleep(self.config.read_timeout)
                error: Exception = ReadTimeoutError(endpoint_url="https://simulated")
            else:
                self.sleep(PAGE_SECONDS if operation in _LISTS else CALL_SECONDS)
                if not account.throttles(operation):
                    return getattr(account, operation)(given)
                error = refusal("ThrottlingException")
            if attempt < attempts - 1:  # AWS SDKs guide, "Retry behavior", standard mode
                self.sleep(min(20.0, account.random.random() * 2**attempt))
        raise error

    def get_paginator(self, operation: str) -> Any:
        ask = self.ask

        class Paginator:
            def paginate(self, **given: Any) -> Iterator[Any]:
                given.pop("PaginationConfig", None)
                answer: dict[str, Any] = {"next": 0}
                while "next" in answer:
                    answer = ask(operation, given | {"next": answer["next"]})
                    yield answer

        return Paginator()


@dataclass
class Function:
    """The janitor's function: scheduled runs, the lease, a timeout, and a container that is reused until it is stopped.

    Args:
        lease: whether runs take the lease.
    """

    account: Account
    lease: bool = True
    ended: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    concurrent: int = 0
    most_concurrent: int = 0
    _idle: list[tuple[Janitor, RunLease, list[Any]]] = field(default_factory=list)

    def every(self, period: float, until: float, first: float = 0) -> None:
        moment = first
        while moment < until:
            self.account.at(moment, self.invoke)
            moment += period

    def invoke(self) -> None:
        account, hub = self.account, getcurrent()
        deadline = account.now + TIMEOUT
        janitor, lease, invocation = self._idle.pop() if self._idle else self._container()

        def sleep(seconds: float) -> None:
            moment = account.now + seconds
            account.at(min(moment, deadline), run.switch)
            hub.switch()
            if moment > deadline:
                raise _Stopped

        def go() -> None:
            try:
                self._run(janitor, lease, deadline)
            except _Stopped:
                self.ended["timed out"] += 1
            else:
                self._idle.append((janitor, lease, invocation))

        run = greenlet(go)
        invocation[:] = [sleep]
        run.switch()

    def _run(self, janitor: Janitor, lease: RunLease, deadline: float) -> None:
        begun = self.account.now
        if self.lease and not lease.take(deadline - begun):
            self.ended["skipped"] += 1
            return
        self.concurrent += 1
        self.most_concurrent = max(self.most_concurrent, self.concurrent)
        try:
            janitor.run(deadline - begun)
        finally:
            self.concurrent -= 1
        if self.lease:
            lease.release()
        self.ended["finished"] += 1
        self.seconds.append(self.account.now - begun)

    def _container(self) -> tuple[Janitor, RunLease, list[Any]]:
        account, invocation = self.account, list[Any]()

        def sleep(seconds: float) -> None:
            invocation[0](seconds)  # of the container's current invocation

        def client(config: Any) -> Any:
            return _Client(account, config, sleep)

        def clock() -> float:
            return EPOCH + account.now

        configs = client_configs("janitor")
        dynamodb, sqs = client(configs["_client_config"]), client(configs["_client_config"])
        workflow = Workflow(client(configs["_list_config"]), "arn:stateMachine:workflow")
        settlement = Settlement(
            workflow, FailedRequestQueue(sqs, "failed"), SettlementTable(dynamodb, "settled"), GRACE, clock
        )
        janitor = Janitor(
            Slots(dynamodb, "slots"),
            Processes(dynamodb, "slots"),
            RequestQueue(sqs, "requests"),
            workflow,
            GlueRuns(client(configs["_list_config"])),
            Children(client(configs["_list_config"])),
            settlement,
            GRACE,
            LOOK_GAP,
            clock,
            account.random.shuffle,
        )
        numbers = iter(range(10**9))
        lease = RunLease(dynamodb, "settled", clock, lambda: f"{id(invocation)}-{next(numbers)}")
        return janitor, lease, invocation


def refusal(code: str, **more: Any) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": "simulated"}, "ResponseMetadata": {"RetryAttempts": 0}}
    return ClientError(response | more, "operation")


def _page(name: str, entries: list[Any], at: int, of: int) -> dict[str, Any]:
    following = at + len(entries)
    return {name: entries} | ({"next": following} if entries and following < of else {})


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(EPOCH + seconds, UTC)


def _run(started: float, execution: str, state: str) -> dict[str, Any]:
    run = {"Id": f"jr_{execution}", "JobRunState": state, "StartedOn": _date(started)}
    return run | {"Arguments": {MARKER: execution} if execution else {}}


def _holder(since: float, job: str) -> dict[str, Any]:
    return {"M": {"state": {"S": "RUNNING"}, "since": {"N": str(int(EPOCH + since))}, "job": {"S": job}}}


def _registered(handle: str) -> dict[str, Any]:
    """A process's `waiting`: a request of weight 1 has registered this handle."""
    number = {"N": "1"}
    texts = {"receipt_handle": handle, "sequence": "1", "execution": "request", "priority": "normal"}
    entry = {name: {"S": text} for name, text in texts.items()}
    return {"M": {"normal": {"M": {**entry, "receives": number, "since": number, "weight": number}}}}
