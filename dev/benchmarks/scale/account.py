"""The simulated AWS of tests/simulation in pieces: a process's item, the head of a message group, one execution.

The simulation's services are pure functions of their whole state, which is what an exploration needs; a call then takes
longer the more there is. Here each call is answered by the same functions, of the only piece that it concerns: nothing
behind the head of a FIFO group can be received, and no execution matters to another. What is left to say of many at
once are the lists: Scan, ListExecutions, GetJobRuns, in pages as long as AWS makes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from botocore.exceptions import ClientError

from dev.benchmarks.scale.meter import Meter
from slotkeeper_cli.write_units import KB, RECEIPT_HANDLE, item_bytes, write_units
from tests.simulation import frozen, workflow
from tests.simulation.aws import dynamodb, glue, sqs, stepfunctions
from tests.simulation.frozen import Moment, Record, freeze, thaw
from tests.simulation.slots_actors import VISIBILITY
from tests.simulation.slots_state import JOB
from tests.simulation.transcript import Answer
from tests.simulation.workflow import REQUESTS, SLOTS

SETTLED = "settled"
PAGE_BYTES = 1024 * KB  # of a Scan (DynamoDB API Reference, Scan)
PAGE_EXECUTIONS = 1000  # maxResults at most (Step Functions API Reference, ListExecutions)
PAGE_RUNS = 200  # MaxResults at most (Glue Web API, GetJobRuns)
_READ = 4 * KB
# The simulation finds what is equal by keeping one of each, for ever; an exploration lives on it, a long run need not.
_CALLS_KEPT = 20_000


class Account:
    """The services that the functions and the workflow call. Every call is counted, to whoever works just then."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.now = 0.0
        self.items: dict[str, dict[str, Record]] = {SLOTS: {}, SETTLED: {}}
        self.groups: dict[str, Group] = {}
        self.executions: dict[str, Record] = {}
        self.open: dict[str, None] = {}  # names, the last one last
        self.closed: dict[str, list[str]] = {}  # status -> names, likewise
        self.runs: dict[str, Record] = {}  # by the execution whose run it is
        self.on_start: Callable[[str], object] = lambda _name: None
        self.on_visible: Callable[[str, float], object] = lambda _group, _at: None
        self.throttled: set[str] = set()  # operations, always
        self._sizes: dict[Record, int] = {}
        self._calls = 0

    def client(self, service: str, **_: Any) -> Any:
        """A boto3 client's double."""
        return _Client(self, service)

    def put(self, item: dict[str, Any]) -> None:
        """Makes a process, in DynamoDB's own form."""
        self.items[SLOTS][item["process_name"]["S"]] = freeze(item)

    def call(self, service: str, operation: str, given: Record) -> Answer:
        """One call."""
        self._calls += 1
        if self._calls % _CALLS_KEPT == 0:
            self._forget()
        self.meter.count(f"{service}.{operation}")
        if operation in self.throttled:
            return Answer(error="ThrottlingException")
        answer: Answer = getattr(self, f"_{operation}", self._nothing)(given)
        return answer

    def close(self, name: str, status: str, error: str = "") -> None:
        """An execution is over."""
        pieces = stepfunctions.close(frozen.record({name: self.executions[name]}), name, status, self.now, error)
        self.executions[name] = pieces[name]
        del self.open[name]
        self.closed.setdefault(status, []).append(name)

    def end_run(self, execution: str) -> None:
        """Glue has run it, well."""
        self.runs[execution] = glue.end(self.runs[execution], JOB, "jr_1", "SUCCEEDED", self.now)

    # DynamoDB ------------------------------------------------------------------------------------------------------

    def _update_item(self, given: Record) -> Answer:
        return self._write("update_item", given, given["Key"])

    def _put_item(self, given: Record) -> Answer:
        key = dynamodb.KEY_ATTRIBUTES[given["TableName"]]
        return self._write("put_item", given, frozen.record({key: given["Item"][key]}))

    def _write(self, operation: str, given: Record, key: Record) -> Answer:
        table, name = given["TableName"], _text_of(key)
        items = self.items[table]
        before = items.get(name)
        pieces, answer = dynamodb.perform(self._alone(table, name), operation, given)
        after = pieces[table].get(name)
        # A refused write is paid like one that was made.
        self.meter.count("write units", write_units(self._size(before), self._size(after)))
        if answer.error:
            self.meter.count("refused writes")
        else:
            items[name] = after
        return answer

    def _get_item(self, given: Record) -> Answer:
        name = _text_of(given["Key"])
        self._count_read(self._size(self.items[given["TableName"]].get(name)))
        return dynamodb.perform(self._alone(given["TableName"], name), "get_item", given)[1]

    def _batch_get_item(self, given: Record) -> Answer:
        found: dict[str, list[Any]] = {}
        for table, wanted in given["RequestItems"].fields.items():
            names = [_text_of(key) for key in wanted["Keys"]]
            found[table] = [thaw(self.items[table][name]) for name in names if name in self.items[table]]
            for _ in names:
                self._count_read(1)
        return Answer({"Responses": found, "UnprocessedKeys": {}})

    def _scan(self, given: Record) -> Answer:
        items = list(self.items[given["TableName"]].values())
        at = given.get("next", 0)
        page: list[Any] = []
        size = 0
        for item in items[at:]:
            page.append(thaw(item))
            size += self._size(item)
            if size >= PAGE_BYTES:
                break
        self._count_read(size)
        return _page(page, "Items", at + len(page), len(items))

    def _alone(self, table: str, name: str) -> Record:
        """The tables, if there were only this item."""
        item = self.items[table].get(name)
        return frozen.record({table: frozen.record({name: item} if item else {})})

    def _size(self, item: Record | None) -> int:
        if item is None:
            return 0
        size = self._sizes.get(item)
        if size is None:
            size = self._sizes[item] = item_bytes(thaw(item))
        return size

    def _count_read(self, size: int) -> None:
        """A consistent read: a unit for each 4 KB, and one where nothing was found."""
        self.meter.count("read units", max(1, -(-size // _READ)))

    # SQS -----------------------------------------------------------------------------------------------------------

    def _change_message_visibility(self, given: Record) -> Answer:
        group, _, handle = given["ReceiptHandle"].rstrip("~").partition("/")
        answer = self.groups[group].perform(
            "change_message_visibility", given.with_fields(ReceiptHandle=handle), self.now
        )
        if answer.error:
            self.meter.count("spent handles")
        else:
            self.on_visible(group, self.now + given["VisibilityTimeout"])
        return answer

    def _change_message_visibility_batch(self, given: Record) -> Answer:
        failed = []
        for entry in given["Entries"]:
            answer = self._change_message_visibility(entry)
            if answer.error:
                failed.append({"Id": entry["Id"], "Code": answer.error, "SenderFault": True})
        return Answer({"Failed": failed})

    # Step Functions ------------------------------------------------------------------------------------------------

    def _start_execution(self, given: Record) -> Answer:
        name = given["name"]
        is_new = name not in self.executions
        pieces, answer = stepfunctions.perform(self._execution(name), "start_execution", given, self.now)
        if is_new:
            self.executions[name] = pieces[name]
            self.open[name] = None
            self.on_start(name)
        return answer

    def _describe_execution(self, given: Record) -> Answer:
        name = given["executionArn"].rpartition(":")[2]
        return stepfunctions.perform(self._execution(name), "describe_execution", given, self.now)[1]

    def _list_executions(self, given: Record) -> Answer:
        status, at = given["statusFilter"], given.get("next", 0)
        names = list(self.open) if status == "RUNNING" else self.closed.get(status, [])
        # The last first (Step Functions API Reference, ListExecutions).
        part = names[max(0, len(names) - at - PAGE_EXECUTIONS) : len(names) - at][::-1]
        return _page([self._listed(name) for name in part], "executions", at + len(part), len(names))

    def _execution(self, name: str) -> Record:
        """The executions, if there were only this one."""
        return frozen.record({name: self.executions[name]} if name in self.executions else {})

    def _listed(self, name: str) -> dict[str, Any]:
        found = self.executions[name]
        told = {"name": name, "status": found["status"], "startDate": thaw(Moment(found["started"]))}
        return told | ({"stopDate": thaw(Moment(found["stopped"]))} if found["stopped"] else {})

    # Glue ----------------------------------------------------------------------------------------------------------

    def _start_job_run(self, given: Record) -> Answer:
        execution = given["Arguments"]["--slotkeeper-execution"]
        self.runs[execution], answer = glue.perform(glue.jobs(**{JOB: 1}), "start_job_run", given, self.now)
        return answer

    def _get_job_runs(self, given: Record) -> Answer:
        owners, at = list(self.runs), given.get("next", 0)
        told: list[Any] = []
        for owner in owners[max(0, len(owners) - at - PAGE_RUNS) : len(owners) - at][::-1]:
            _, answer = glue.perform(self.runs[owner], "get_job_runs", given, self.now)
            told += thaw(answer.value)["JobRuns"]
        return _page(told, "JobRuns", at + len(told), len(owners))

    def _nothing(self, _: Record) -> Answer:
        """EventBridge: what is sent there nobody here reads."""
        return Answer(freeze({}))

    def _forget(self) -> None:
        """Bounds memory. The items are made anew, since a condition tells equal from identical by nothing else."""
        items = {table: {name: thaw(item) for name, item in found.items()} for table, found in self.items.items()}
        frozen.forget()
        workflow.forget()
        self._sizes.clear()
        self.items = {table: {name: freeze(item) for name, item in found.items()} for table, found in items.items()}


class Group:
    """One message group: its head in the simulated queue, and the bodies behind it."""

    def __init__(self, name: str, bodies: deque[str], sent_at: float) -> None:
        self.name = name
        self._behind = bodies
        self._sent_at = sent_at
        self._queue = sqs.queue(VISIBILITY, fifo=True)
        self._show_next()

    def perform(self, operation: str, given: Record, now: float) -> Answer:
        """One call of the simulated queue."""
        state = frozen.record({REQUESTS: self._queue})
        queues, answer = sqs.perform(state, operation, given.with_fields(QueueUrl=REQUESTS), now)
        self._queue = queues[REQUESTS]
        if operation == "delete_message" and not self._queue["messages"]:
            self._show_next()
        return answer

    def receive(self, now: float) -> dict[str, Any] | None:
        """The head, if it can be received, with a handle as long as SQS makes them."""
        answer = self.perform("receive_message", frozen.record({}), now)
        messages = thaw(answer.value).get("Messages", [])
        if not messages:
            return None
        message: dict[str, Any]
        (message,) = messages
        message["handle"] = f"{self.name}/{message['handle']}".ljust(RECEIPT_HANDLE, "~")
        return message

    def delete(self, handle: str, now: float) -> None:
        """The head was consumed."""
        spent = frozen.record({"ReceiptHandle": handle.rstrip("~").partition("/")[2]})
        answer = self.perform("delete_message", spent, now)
        if answer.error:
            raise RuntimeError(f"the head of {self.name} could not be deleted: {answer.error}")

    def _show_next(self) -> None:
        if self._behind:
            body = frozen.record({"MessageBody": self._behind.popleft(), "MessageGroupId": self.name})
            self.perform("send_message", body, self._sent_at)


class _Client:
    """What boto3 would make; while it is asked, no time of the asker's passes."""

    def __init__(self, account: Account, service: str) -> None:
        self._account, self._service = account, service

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        return lambda **given: self.ask(operation, given)

    def ask(self, operation: str, given: dict[str, Any]) -> Any:
        """Raises ClientError."""
        meter = self._account.meter
        who = meter.halt()
        try:
            answer = self._account.call(self._service, operation, freeze(given))
            if not answer.error:
                return thaw(answer.value)
            error = {"Code": answer.error, "Message": "simulated"}
            response: Any = {"Error": error, "ResponseMetadata": {"RetryAttempts": 0}}
            raise ClientError(response | (thaw(answer.value) or {}), operation)
        finally:
            meter.go(who)

    def get_paginator(self, operation: str) -> _Paginator:
        return _Paginator(self, operation)


class _Paginator:
    """Each page is a call."""

    def __init__(self, client: _Client, operation: str) -> None:
        self._client, self._operation = client, operation

    def paginate(self, **given: Any) -> Iterator[Any]:
        given.pop("PaginationConfig", None)  # pages are as long as they can be
        answer: dict[str, Any] = {"next": 0}
        while "next" in answer:
            answer = self._client.ask(self._operation, given | {"next": answer["next"]})
            yield answer


def _page(found: list[Any], name: str, following: int, of: int) -> Answer:
    """Not frozen: nobody compares lists, and to freeze a thousand entries takes long."""
    return Answer({name: found} | ({"next": following} if following < of else {}))


def _text_of(key: Record) -> str:
    (value,) = key.fields.values()
    text: str = value["S"]
    return text
