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
from tests.least_privilege.recording import Case, Recorded
from tests.least_privilege.resolved_template import Stack
from tests.support.cold_functions import RESPONSE_URL
from tests.support.http_servers import Listener, ok
from tests.support.in_process_tables import DOWNSTREAMS, LEDGER, REQUESTS, SLOTS, TOKENS
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


def message(body: Any, queue: str, age: float = 0, receives: int = 1, **attributes: Any) -> dict[str, Any]:
    """An event of the event source mapping with one message."""
    record = request_record(body, sent_at=time.time() - age)
    record["attributes"] |= {"ApproximateReceiveCount": str(receives)}
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
    """A row of RequestTable, of a request that was sent a minute ago. Only a queued one has a place."""
    sent = number(time.time() - 60)
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


LATE = {"start_before": {"N": "1700000000"}, "deadline": {"N": "1700000000"}}
CANCELLED = row("p-gone", "CANCELLED", code={"S": "Cancelled"}, reason={"S": "by an operator"}, open={"N": "-1"})


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
    yield Case(function, "its name belongs to an earlier execution", sent, taken)
    yield Case(function, "a ring", rung(), there(row()))
    rate = {"rate": {"M": {"count": {"N": "1"}, "seconds": {"N": "60"}, "burst": {"N": "1"}}}}
    paced = rate | {"next_start": number((time.time() + 60) * 1000)}
    yield Case(function, "a ring, and the rate permits a start later", rung(), there(row(), **paced))
    yield Case(function, "a ring whose reservation's starter has died", rung(), there(row("p-1"), **held("RESERVED")))
    yield Case(
        function, "a ring, and a reserved request has ended", rung(), there(row("p-1", "FAILED"), **held("RESERVED"))
    )
    yield Case(
        function,
        "a ring, and a lease has expired",
        rung(),
        there(row(), **held("LEASED", until=number(1_700_000_000), code={"S": "c"})),
    )
    yield Case(function, "a ring after a cancellation", rung(ended=["p-gone"]), there(CANCELLED))


def janitor(job: str) -> Iterator[Case]:
    there = partial(with_process, job)

    def ended(
        status: str = "ABORTED", error: str = "", alive: bool = False, **item: Item
    ) -> Callable[[Recorded], None]:
        def arrange(account: Recorded) -> None:
            there(row("p-1", "STARTED"), row(), **item)(account)
            account.execution("p-1", status, json.dumps(REQUEST | {"attempt": 1, "arguments": {}}), error=error)
            account.age_executions(DAY)
            account.jobs = {job: {"Name": job}}
            state = "RUNNING" if alive else "STOPPED"
            account.runs = [{"Id": "jr_1", "JobRunState": state, "Arguments": {"--slotkeeper-execution": "p-1"}}]

        return arrange

    def removed(account: Recorded) -> None:
        put(REQUESTS, row("p-1", "STARTED"))(account)
        account.execution("p-1", "FAILED", error="SlotLost")
        account.age_executions(DAY)

    function = "JanitorFunction"
    quiet = held("RUNNING", job, quiet_since=number(time.time() - DAY))
    lease = held("LEASED", until=number(1_700_000_000), code={"S": "c"})
    yield Case(function, "no processes", {}, put(SLOTS))
    yield Case(function, "a reserved slot, not started", {}, there(row(), **held("RESERVED")))
    yield Case(function, "a drifted counter", {}, there(slots_in_use={"N": "1"}))
    yield Case(function, "a request is queued although a slot is free", {}, there(row()))
    yield Case(function, "a request has to leave the queue", {}, there(row(**LATE)))
    yield Case(function, "an end without an answer", {}, there(CANCELLED))
    yield Case(function, "a lease has expired", {}, there(row(), **lease))
    yield Case(function, "its run lives", {}, ended(alive=True, **held("RUNNING", job)))
    yield Case(function, "its run lives again", {}, ended(alive=True, **quiet))
    yield Case(function, "the first check of a run", {}, ended(**held("RUNNING", job)))
    yield Case(function, "the second check of a run", {}, ended(**quiet))
    yield Case(function, "the workflow has kept its request", {}, ended("FAILED"))
    yield Case(function, "the workflow has found no slot", {}, ended("FAILED", "SlotLost"))
    yield Case(function, "the workflow has found no slot, and its process was removed", {}, removed)

    function = "EndingFunction"
    closed = message({"detail": {"name": "p-1", "status": "ABORTED"}}, "status-events")
    yield Case(function, "its run lives", closed, ended(alive=True, **held("RUNNING", job)))
    yield Case(function, "its run lives again", closed, ended(alive=True, **quiet))
    yield Case(function, "the first check", closed, ended(**held("RUNNING", job)))
    yield Case(function, "the second check", closed, ended(**quiet))
    yield Case(function, "nothing was confirmed", closed, ended(**held("RESERVED")))
    yield Case(function, "it holds no slot", closed, ended())
    yield Case(function, "it has found no slot", closed, ended("FAILED", "SlotLost"))
    yield Case(function, "it has found no slot, and its process was removed", closed, removed)


def with_caller(target: str, caller: str) -> Iterator[Case]:
    """Cases of a request with a caller, whose task token is its ARN, and of the child if the target has one."""
    arguments = REQUEST | {"attempt": 1, "caller": "digest"}

    def ended(
        status: str = "ABORTED", error: str = "", cause: str = "", child: str = "", redrives: int = 0, **item: Item
    ) -> Callable[[Recorded], None]:
        def arrange(account: Recorded) -> None:
            put(SLOTS, process(target, **item))(account)
            account.execution("p-1", status, json.dumps(arguments), error=error, cause=cause)
            account.age_executions(DAY)
            account.jobs = {target: {"Name": target}}
            if child:
                arn = target.replace(":stateMachine:", ":execution:") + ":p-1"
                started_by = account.executions["p-1"]["executionArn"]
                given = json.dumps({"AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": started_by})
                account.children[arn] = {"name": "p-1", "status": child, "input": given, "redriveCount": redrives}
                account.children[arn] |= {"output": "{}"} if child == "SUCCEEDED" else {}
            put(REQUESTS, row("p-1", "STARTED", task_token={"S": caller}))(account)
            answer = {"TaskToken": caller, **({"Output": "{}"} if "SUCCEEDED" in cause else {"Error": "E"})}
            account.history = [{"taskScheduledEventDetails": {"parameters": json.dumps(answer)}}]

        return arrange

    running = held("RUNNING", target)
    sent = message(REQUEST | {"task_token": caller}, "requests.fifo")
    yield Case("StarterFunction", "the request of a caller, no such process", sent, put(SLOTS))
    closed = message({"detail": {"name": "p-1", "status": "ABORTED"}}, "status-events")
    for function, event in (("JanitorFunction", {}), ("EndingFunction", closed)):
        yield Case(function, "its child runs", event, ended(child="RUNNING", **running))
        yield Case(function, "its child has succeeded", event, ended(child="SUCCEEDED", **running))
        yield Case(function, "its child has failed", event, ended(child="FAILED", **running))
        yield Case(function, "the slot was released, and the caller not answered", event, ended())
        for cause in ("SUCCEEDED, but", "FAILED, and"):
            yield Case(function, f"no answer, {cause}", event, ended("FAILED", "AnswerFailed", cause))
    yield Case("JanitorFunction", "its child was redriven", {}, ended(child="RUNNING", redrives=1))


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
    yield from process_registrar(jobs[0])
    for machine in machines:
        yield from with_caller(machine, callers[0])
    for caller in callers:
        yield from with_caller(jobs[0], caller)
    if machines:
        yield registered_state_machine(machines[0])
    yield from chatbot(stack, api)
    yield from token_refresher(stack)
    yield from worker()
    yield from retry_report()
