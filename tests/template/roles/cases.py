"""The cases: invocations of each function, one for each branch with different calls, and the account of each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from slotkeeper.chatbot.signatures import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from slotkeeper.retry.message import parse_message
from slotkeeper.slots.request import execution_name
from tests.http_servers import Listener, ok
from tests.simulation.account.cold_functions import RESPONSE_URL
from tests.simulation.account.in_process_tables import DOWNSTREAMS, LEDGER, REQUESTS, SLOTS, TOKENS
from tests.template.roles.recording import CONDITION, Case, Recorded
from tests.template.roles.resolved_template import Stack
from tests.unit.conftest import request_record

DAY = 86_400
Item = dict[str, Any]


def number(value: float) -> Item:
    return {"N": str(int(value))}


def put(table: str, *items: Item) -> Callable[[Recorded], None]:
    def arrange(account: Recorded) -> None:
        for item in items:
            account.tables.put(table, item)

    return arrange


def message(body: Any, queue: str, **attributes: Any) -> dict[str, Any]:
    """An event of the event source mapping with one message."""
    record = request_record(body, sent_at=time.time())
    now = str(int(time.time() * 1000))
    record["attributes"] |= {"ApproximateReceiveCount": "1", "ApproximateFirstReceiveTimestamp": now}
    source = f"arn:aws:sqs:us-east-1:123456789012:{queue}"
    return {"Records": [record | {"messageAttributes": attributes, "eventSourceARN": source}]}


def custom_resource(request: str, name: str, properties: Any, **more: Any) -> dict[str, Any]:
    """CloudFormation's event for a resource of this logical id."""
    return {
        "RequestType": request,
        "ResponseURL": RESPONSE_URL,
        "StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/slotkeeper/1",
        "RequestId": "request",
        "LogicalResourceId": name,
        "ResourceProperties": properties,
    } | more


REQUEST = {"process": "p", "request_id": "order-1"}


def process(job: str, **more: Item) -> Item:
    return {
        "process_name": {"S": "p"},
        "slot_limit": {"N": "1"},
        "slots_in_use": {"N": "0"},
        "holders": {"M": {}},
        "grants": {"N": "1700000000000"},
        "target": {"S": job},
    } | more


def held(state: str, job: str = "", name: str = "p-1", **entry: Item) -> Item:
    """Attributes of a process whose only slot has been held for two days."""
    entry |= {"state": {"S": state}, "since": number(time.time() - 2 * DAY)} | ({"job": {"S": job}} if job else {})
    return {"slots_in_use": {"N": "1"}, "holders": {"M": {name: {"M": entry}}}}


def row(execution: str = "p-waits", state: str = "QUEUED", **more: Item) -> Item:
    """A row of RequestTable, of a request that was sent a minute ago, or days ago. Only a queued one has a place."""
    sent = number(time.time() - (60 if state == "QUEUED" else 2 * DAY))
    place = {"S": f"1#{'0' * 14}#{'0' * 40}"}
    return {
        "process_name": {"S": "p"},
        "execution": {"S": execution},
        "state": {"S": state},
        "request_id": {"S": "order-2"},
        "attempt": {"N": "1"},
        "message_id": {"S": "m2"},
        "digest": {"S": "another"},
        "body": {"S": json.dumps(REQUEST | {"request_id": "order-2", "attempt": 1, "arguments": {}})},
        "priority": {"S": "normal"},
        "sent": sent,
        "placed": place,
        "open": sent,
        **({"place": place} if state == "QUEUED" else {}),
        **more,
    }


EXPIRED_LEASE = held("LEASED", until=number(1_700_000_000), code={"S": "c"})
LATE = {"start_before": {"N": "1700000000"}, "deadline": {"N": "1700000000"}}


def with_process(job: str, *rows: Item, **item: Item) -> Callable[[Recorded], None]:
    """A process of this job, with these attributes, and rows."""

    def arrange(account: Recorded) -> None:
        put(SLOTS, process(job, **item))(account)
        put(REQUESTS, *rows)(account)

    return arrange


def rung(**fields: Any) -> dict[str, Any]:
    return message({"process": "p"} | fields, "DispatchQueue")


def starter(job: str) -> Iterator[Case]:
    sent = message(REQUEST, "requests.fifo")
    name, there = execution_name("p", "order-1", 1), partial(with_process, job)

    def taken(account: Recorded) -> None:
        there()(account)
        account.execution(name, "SUCCEEDED")
        account.age_executions(DAY)

    def refused(account: Recorded) -> None:
        there(row(name))(account)
        account.refuse["PutItem"] = CONDITION

    function = "StarterFunction"
    yield Case(function, "a free slot", sent, there())
    yield Case(function, "no free slot", sent, there(**held("RUNNING")))
    skips = message(REQUEST | {"when_busy": "skip"}, "requests.fifo")
    yield Case(function, "no free slot, and the request skips", skips, there(**held("RUNNING")))
    late = message(REQUEST | {"start_before": "2020-11-28T08:00:00Z"}, "requests.fifo")
    yield Case(function, "too late", late, there())
    yield Case(function, "no such process", sent, put(SLOTS))
    yield Case(function, "a process for leases alone", sent, there(target={"S": "none"}))
    yield Case(function, "a malformed item", sent, there(slot_limit={"S": "1"}))
    yield Case(function, "not a request", message("{", "requests.fifo"), put(SLOTS))
    yield Case(function, "the id of another request", sent, there(row(name, "SUCCEEDED")))
    yield Case(function, "the same again, and the refusal does not contain its row", sent, refused)
    yield Case(function, "its name belongs to an earlier execution", sent, taken)
    yield Case(function, "a ring", rung(), there(row()))
    rate = {"rate": {"M": {"count": {"N": "1"}, "seconds": {"N": "60"}, "burst": {"N": "1"}}}}
    paced = rate | {"next_start": number((time.time() + 60) * 1000)}
    yield Case(function, "a ring, and the rate permits a start later", rung(), there(row(), **paced))
    reserved = held("RESERVED")
    yield Case(function, "a ring whose reservation's starter has died", rung(), there(row("p-1"), **reserved))
    yield Case(function, "a ring, and a reserved request has ended", rung(), there(row("p-1", "FAILED"), **reserved))
    yield Case(function, "a ring, and a lease has expired", rung(), there(row(), **EXPIRED_LEASE))
    yield Case(function, "a ring, and a request has to leave the queue", rung(at=0), there(row(**LATE)))


def janitor(job: str) -> Iterator[Case]:
    there = partial(with_process, job)

    def removed_after_its_read(account: Recorded) -> None:
        there(row())(account)
        read = partial(account.tables.perform, "Scan")

        def scan(parameters: dict[str, Any]) -> dict[str, Any]:
            found = read(parameters)
            account.tables.perform("DeleteItem", {"TableName": SLOTS, "Key": {"process_name": {"S": "p"}}})
            return found

        account._Scan = scan

    for name, arrange in (
        ("no processes", put(SLOTS)),
        ("a reserved slot, not started", there(row(), **held("RESERVED"))),
        ("a drifted counter", there(slots_in_use={"N": "1"})),
        ("a request is queued although a slot is free", there(row())),
        ("a request has to leave the queue", there(row(**LATE))),
        ("a process is removed during the run", removed_after_its_read),
        ("a lease has expired", there(row(), **EXPIRED_LEASE)),
    ):
        yield Case("JanitorFunction", name, {}, arrange)


def ending(**fields: Any) -> dict[str, Any]:
    return message(fields, "EndingQueue")


CLOSED = ending(detail={"name": "p-1", "status": "ABORTED"})


def closed(job: str) -> Iterator[Case]:
    """Cases of an execution that has closed, for both functions that settle and publish."""
    there = partial(with_process, job)

    def ended(
        status: str = "ABORTED", error: str = "", alive: bool = False, **item: Item
    ) -> Callable[[Recorded], None]:
        def arrange(account: Recorded) -> None:
            there(row("p-1", "STARTED"), row(), **item)(account)
            account.execution("p-1", status, error=error)
            account.age_executions(DAY)
            account.jobs = {job: {"Name": job}}
            state = "RUNNING" if alive else "STOPPED"
            account.runs = [{"Id": "jr_1", "JobRunState": state, "Arguments": {"--slotkeeper-execution": "p-1"}}]

        return arrange

    quiet = held("RUNNING", job, quiet_since=number(time.time() - DAY))
    for function, event in (("JanitorFunction", {}), ("EndingFunction", CLOSED)):
        for name, arrange in (
            ("its run lives", ended(alive=True, **held("RUNNING", job))),
            ("its run lives again", ended(alive=True, **quiet)),
            ("the first check of its run", ended(**held("RUNNING", job))),
            ("the second check of its run", ended(**quiet)),
            ("it holds no slot", ended()),
            ("it has found no slot", ended("FAILED", "SlotLost")),
            ("nothing was confirmed", ended(**held("RESERVED"))),
        ):
            yield Case(function, name, event, arrange)

    def removed(account: Recorded) -> None:
        put(REQUESTS, row("p-1", "STARTED"))(account)
        account.execution("p-1", "FAILED", error="SlotLost")
        account.age_executions(DAY)

    yield Case("EndingFunction", "it has found no slot, and its process was removed", CLOSED, removed)
    succeeded = ending(detail={"name": "p-1", "status": "SUCCEEDED"})
    yield Case("EndingFunction", "a success", succeeded, there(row("p-1", "SUCCEEDED", open=number(-1))))


def with_caller(target: str, caller: str) -> Iterator[Case]:
    """Cases of ends that must be published, of a request with a caller, whose task token is its ARN."""
    why: Item = {"code": {"S": "E"}, "cause": {"S": "a reason"}}
    for function, event in (("JanitorFunction", {}), ("EndingFunction", ending(process="p"))):
        for state in ("SUCCEEDED", "FAILED"):
            ended = row("p-1", state, ended=number(1), open=number(-1), task_token={"S": caller}, **why)
            yield Case(function, f"the caller's request: {state}", event, with_process(target, ended))
    refused = {"message_id": "m", "group_id": "p", "code": "InvalidRequest", "reason": "no JSON", "task_token": caller}
    yield Case("EndingFunction", "a message that is no request", ending(refused=refused), put(SLOTS))


def with_child(target: str) -> Iterator[Case]:
    """Cases of a child execution of a state machine."""

    def ended(child: str, error: str = "", redrives: int = 0, **item: Item) -> Callable[[Recorded], None]:
        def arrange(account: Recorded) -> None:
            with_process(target, row("p-1", "STARTED"), **item)(account)
            arn = target.replace(":stateMachine:", ":execution:") + ":p-1"
            status = "FAILED" if error else "ABORTED"
            account.execution("p-1", status, error=error, cause=f"{arn} has an output that is too large")
            account.age_executions(DAY)
            started_by = account.executions["p-1"]["executionArn"]
            given = json.dumps({"AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": started_by})
            account.children[arn] = {"name": "p-1", "status": child, "input": given, "redriveCount": redrives}
            account.children[arn] |= {"output": "{}"} if child == "SUCCEEDED" else {}

        return arrange

    running = held("RUNNING", target)
    for function, event in (("JanitorFunction", {}), ("EndingFunction", CLOSED)):
        yield Case(function, "its child runs", event, ended("RUNNING", **running))
        yield Case(function, "its child has succeeded", event, ended("SUCCEEDED", **running))
        yield Case(function, "its child has failed", event, ended("FAILED", **running))
        yield Case(function, "its child was too large to read", event, ended("SUCCEEDED", "ChildTooLarge"))
    yield Case("JanitorFunction", "its child was redriven", {}, ended("RUNNING", redrives=1, **running))


def process_registrar(job: str) -> Iterator[Case]:
    def deployment(request: str, before: str = "") -> dict[str, Any]:
        properties = {"ProcessName": "p", "SlotLimit": "3", "Target": job}
        old = {"OldResourceProperties": properties | {"Target": before}} if before else {}
        return custom_resource(request, "Process", properties, **old)

    def there(*items: Item, **job_is: Any) -> Callable[[Recorded], None]:
        def arrange(account: Recorded) -> None:
            put(SLOTS, *items)(account)
            account.jobs = {job: {"Name": job, **job_is}}

        return arrange

    function = "ProcessRegistrarFunction"
    yield Case(function, "a new process", deployment("Create"), there())
    yield Case(function, "the process is there", deployment("Create"), there(process("another")))
    yield Case(function, "another job", deployment("Update", "before"), there(process("before")))
    yield Case(function, "a job that retries", deployment("Create"), there(MaxRetries=1))
    yield Case(function, "the stack is deleted", deployment("Delete"), there())
    permitted = {"SampleJob": "", "JobArns": [f"arn:aws:glue:us-east-1:123456789012:job/{job}"]}
    jobs = custom_resource("Update", "PermittedJobs", permitted, ResourceType="Custom::PermittedJobs")
    yield Case(function, "a job is in use", jobs, there(process("another", **held("RUNNING", "another"))))


def registered_state_machine(target: str) -> Case:
    event = custom_resource("Create", "Process", {"ProcessName": "p", "SlotLimit": "3", "Target": target})
    return Case("ProcessRegistrarFunction", "a new process with a state machine", event, put(SLOTS))


KEY = "a key that is long enough"
TOKEN = {"token_name": {"S": "chatbot"}, "access_token": {"S": "t"}, "generation": {"N": "7"}, "stored_at": {"N": "1"}}
EXPIRED = {"refresh_lock": {"M": {"release_code": {"S": "code-1"}, "expires": {"N": "1700000000.000"}}}}


def _secrets(stack: Stack, *items: Item) -> Callable[[Recorded], None]:
    def arrange(account: Recorded) -> None:
        put(TOKENS, *items)(account)
        known = {"client_id": "bot", "client_secret": "secret"}
        account.secrets[stack.arn("ApiCredentialsSecret")] = {"SecretString": json.dumps(known)}
        account.secrets[stack.arn("SigningKeySecret")] = {"SecretString": json.dumps({"signing_key": KEY})}

    return arrange


def chatbot(stack: Stack, api: Listener) -> Iterator[Case]:
    def refusing(*items: Item) -> Callable[[Recorded], None]:
        def arrange(account: Recorded) -> None:
            _secrets(stack, *items)(account)
            api.answers |= dict.fromkeys(("/answers", "/me"), b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")

        return arrange

    def answering(account: Recorded) -> None:
        _secrets(stack, TOKEN)(account)
        api.answers |= {"/answers": ok(b'{"answer": "hello yourself"}')}

    body, now = json.dumps({"message_id": "m1", "text": "hello"}), int(time.time())
    event = {
        "resource": "/messages",
        "path": "/messages",
        "httpMethod": "POST",
        "headers": {TIMESTAMP_HEADER: str(now), SIGNATURE_HEADER: sign(KEY, now, body)},
        "requestContext": {"requestId": "gateway-1", "stage": "v1", "identity": {"sourceIp": "127.0.0.1"}},
        "body": body,
        "isBase64Encoded": False,
    }
    yield Case("ChatbotFunction", "a message", event, answering)
    yield Case("ChatbotFunction", "an invalid token", event, refusing(TOKEN))
    yield Case("ChatbotFunction", "no token yet", event, refusing())
    yield Case("ChatbotFunction", "an expired lock", event, refusing(TOKEN | EXPIRED))


def token_refresher(stack: Stack) -> Iterator[Case]:
    deployment = custom_resource("Create", "TokenAtDeployment", {})
    locked = {"refresh_lock": {"M": {"release_code": {"S": "code-1"}, "expires": number(time.time() + 9)}}}
    function = "TokenRefresherFunction"
    yield Case(function, "the schedule", {}, _secrets(stack, TOKEN))
    yield Case(function, "no token yet", deployment, _secrets(stack))
    yield Case(function, "a delegated refresh", {"release_code": "code-1"}, _secrets(stack, TOKEN | locked))
    yield Case(function, "an expired lock", {}, _secrets(stack, TOKEN | EXPIRED))


def worker() -> Iterator[Case]:
    request: dict[str, Any] = {"request_id": "r", "payload": {}}
    failing: dict[str, Any] = {"request_id": "r", "payload": {"fails": "not now"}}
    sent = message(request, "work")
    poison = message({"request_id": "r", "payload": {"poison": "bad"}}, "work")
    fails = message(failing, "work")

    def later(account: Recorded) -> None:
        rule = {"base_seconds": 7200, "cap_seconds": 7200, "jitter": "none"}
        account.parameter = json.dumps({"default": rule})

    def died(account: Recorded) -> None:
        row = {
            "request_id": {"S": "r"},
            "status": {"S": "RUNNING"},
            "attempts": {"N": "1"},
            "claim": {"S": "another"},
            "lease_until": {"N": "1700000000"},
            "last_attempt_at": {"S": "2027-01-15T07:59:00.000Z"},
            "payload_hash": {"S": parse_message(json.dumps(failing)).payload_hash},
        }
        account.tables.put(LEDGER, row)

    def scheduled_and_died(account: Recorded) -> None:
        later(account)
        died(account)
        account.refuse["CreateSchedule"] = "ConflictException"

    def opened(*, forced: bool) -> Callable[[Recorded], None]:
        health = {"state": "OPEN", "forced": forced, "changes": [], "permits": {}}
        item = {"downstream": {"S": "default"}, "version": {"N": "1"}, "writer": {"S": "w"}}
        return put(DOWNSTREAMS, item | {"health": {"S": json.dumps(health)}})

    not_before: Item = {"not_before": {"dataType": "Number", "stringValue": str(int(time.time()) + 5000)}}
    for name, event, arrange in (
        ("success", sent, put(LEDGER)),
        ("poison", poison, put(LEDGER)),
        ("a retry by the queue's delay", fails, put(LEDGER)),
        ("a died attempt", fails, died),
        ("a retry by a schedule", fails, later),
        ("a died attempt whose retry is scheduled", fails, scheduled_and_died),
        ("not a message", message("{", "work"), put(LEDGER)),
        ("not due yet", message(request, "work", **not_before), put(LEDGER)),
        ("held back", sent, opened(forced=True)),
        ("a probe closes the breaker", sent, opened(forced=False)),
    ):
        yield Case("WorkerFunction", name, event, arrange)


def retry_report() -> Iterator[Case]:
    yield Case("RetryReportFunction", "the schedule", {}, put(LEDGER))


def of_stack(stack: Stack, jobs: list[str], machines: list[str], callers: list[str], api: Listener) -> Iterator[Case]:
    for job in jobs:
        yield from starter(job)
        yield from janitor(job)
        yield from closed(job)
    yield from process_registrar(jobs[0])
    for machine in machines:
        yield from with_child(machine)
    for caller in callers:
        yield from with_caller(jobs[0], caller)
    if machines:
        yield registered_state_machine(machines[0])
    yield from chatbot(stack, api)
    yield from token_refresher(stack)
    yield from worker()
    yield from retry_report()
