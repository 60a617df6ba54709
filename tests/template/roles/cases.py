"""Invocations of each function that together make each of its calls, and the account before each.

`test_call_sites.py` names a call that no case makes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from slotkeeper.chatbot.signatures import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from slotkeeper.retry.message import parse_message
from slotkeeper.slots.request import execution_name
from tests.http_servers import Listener
from tests.simulation.account.cold_functions import RESPONSE_URL
from tests.simulation.account.items import DOWNSTREAMS, LEDGER, REQUESTS, SLOTS, TOKENS
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
NAME = execution_name("p", "order-1", 1)


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


def with_process(job: str, *rows: Item, **item: Item) -> Callable[[Recorded], None]:
    """A process of this job, with these attributes, and rows."""

    def arrange(account: Recorded) -> None:
        put(SLOTS, process(job, **item))(account)
        put(REQUESTS, *rows)(account)

    return arrange


def taken(job: str, *rows: Item, **item: Item) -> Callable[[Recorded], None]:
    """The name of the request `order-1` belongs to an execution of the day before."""

    def arrange(account: Recorded) -> None:
        with_process(job, *rows, **item)(account)
        account.execution(NAME, "SUCCEEDED")
        account.age_executions(DAY)

    return arrange


def starter(job: str) -> Iterator[Case]:
    sent, there = message(REQUEST, "requests.fifo"), partial(with_process, job)

    def refused(account: Recorded) -> None:
        there(row(NAME))(account)
        account.refuse["PutItem"] = CONDITION

    function = "StarterFunction"
    yield Case(function, "a free slot", sent, there())
    skips = message(REQUEST | {"when_busy": "skip"}, "requests.fifo")
    yield Case(function, "no free slot, and the request skips", skips, there(**held("RUNNING")))
    yield Case(function, "no such process", sent, put(SLOTS))
    yield Case(function, "not a request", message("{", "requests.fifo"), put(SLOTS))
    yield Case(function, "the same again, and the refusal does not contain its row", sent, refused)
    yield Case(function, "its name belongs to an earlier execution", sent, taken(job))
    rate = {"rate": {"M": {"count": {"N": "1"}, "seconds": {"N": "60"}, "burst": {"N": "1"}}}}
    paced = rate | {"next_start": number((time.time() + 60) * 1000)}
    ring = message({"process": "p"}, "DispatchQueue")
    yield Case(function, "a ring, and the rate permits a start later", ring, there(row(), **paced))


def janitor(job: str) -> Iterator[Case]:
    def removed_after_its_read(account: Recorded) -> None:
        with_process(job, row())(account)
        read = partial(account.tables.perform, "Scan")

        def scan(parameters: dict[str, Any]) -> dict[str, Any]:
            found = read(parameters)
            account.tables.perform("DeleteItem", {"TableName": SLOTS, "Key": {"process_name": {"S": "p"}}})
            return found

        account._Scan = scan

    yield Case("JanitorFunction", "a process is removed during the run", {}, removed_after_its_read)
    yield Case("JanitorFunction", "a name belongs to an earlier execution", {}, taken(job, row(NAME)))


def ending(**fields: Any) -> dict[str, Any]:
    return message(fields, "EndingQueue")


CLOSED = ending(detail={"name": "p-1", "status": "ABORTED"})


def closed(job: str) -> Iterator[Case]:
    """Cases of an execution that has closed, for both functions that settle and publish."""

    def ended(*, error: str = "", process_exists: bool = True, **item: Item) -> Callable[[Recorded], None]:
        def arrange(account: Recorded) -> None:
            if process_exists:
                with_process(job, **item)(account)
            put(REQUESTS, row("p-1", "STARTED"))(account)
            account.execution("p-1", "FAILED" if error else "ABORTED", error=error)
            account.age_executions(DAY)
            account.make_job(job)
            account.run_job(job, "RUNNING", {"--slotkeeper-execution": "p-1"})

        return arrange

    lives_again = held("RUNNING", job, quiet_since=number(time.time() - DAY))
    for function, event in (("JanitorFunction", {}), ("EndingFunction", CLOSED)):
        yield Case(function, "its run lives", event, ended(**held("RUNNING", job)))
        yield Case(function, "its run lives again", event, ended(**lives_again))
        yield Case(function, "it holds no slot", event, ended())
        yield Case(function, "it has found no slot", event, ended(error="SlotLost"))
    removed = ended(error="SlotLost", process_exists=False)
    yield Case("EndingFunction", "it has found no slot, and its process was removed", CLOSED, removed)


def with_caller(target: str, caller: str) -> Iterator[Case]:
    """Cases of ends that must be published, of a request with a caller, whose task token is its ARN."""
    why: Item = {"code": {"S": "E"}, "cause": {"S": "a reason"}}
    for function, event in (("JanitorFunction", {}), ("EndingFunction", ending(process="p"))):
        for state in ("SUCCEEDED", "FAILED"):
            ended = row("p-1", state, ended=number(1), open=number(-1), task_token={"S": caller}, **why)
            yield Case(function, f"the caller's request: {state}", event, with_process(target, ended))


def with_child(target: str) -> Iterator[Case]:
    """Cases of a workflow that has closed, and its child runs."""

    def runs(account: Recorded) -> None:
        with_process(target, row("p-1", "STARTED"), **held("RUNNING", target))(account)
        account.execution("p-1", "ABORTED")
        account.age_executions(DAY)
        given = json.dumps({"AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": account.executions["p-1"]["executionArn"]})
        account.execution("p-1", "RUNNING", target, input=given)

    for function, event in (("JanitorFunction", {}), ("EndingFunction", CLOSED)):
        yield Case(function, "its child runs", event, runs)


def process_registrar(job: str, targets: list[str]) -> Iterator[Case]:
    """Cases of CloudFormation's calls for the process, of each target, and for the jobs that the stack permits."""
    function = "ProcessRegistrarFunction"

    def there(item: Item) -> Callable[[Recorded], None]:
        def arrange(account: Recorded) -> None:
            put(SLOTS, item)(account)
            for each in targets:
                (account.make_machine if ":stateMachine:" in each else account.make_job)(each)

        return arrange

    for target in targets:
        process_of = {"ProcessName": "p", "SlotLimit": "3", "Target": target}
        before = process_of | {"Target": "before"}
        update = custom_resource("Update", "Process", process_of, OldResourceProperties=before)
        yield Case(function, f"the process has another target, {target}", update, there(process("before")))
    permitted = {"SampleJob": "", "JobArns": [f"arn:aws:glue:us-east-1:123456789012:job/{job}"]}
    jobs = custom_resource("Update", "PermittedJobs", permitted, ResourceType="Custom::PermittedJobs")
    yield Case(function, "a job is in use", jobs, there(process("another", **held("RUNNING", "another"))))


KEY = "a key that is long enough"
TOKEN = {"token_name": {"S": "chatbot"}, "access_token": {"S": "t"}, "generation": {"N": "7"}, "stored_at": {"N": "1"}}


def _secrets(stack: Stack) -> Callable[[Recorded], None]:
    def arrange(account: Recorded) -> None:
        put(TOKENS, TOKEN)(account)
        known = {"client_id": "bot", "client_secret": "secret"}
        account.secrets[stack.arn("ApiCredentialsSecret")] = {"SecretString": json.dumps(known)}
        account.secrets[stack.arn("SigningKeySecret")] = {"SecretString": json.dumps({"signing_key": KEY})}

    return arrange


def chatbot(stack: Stack, api: Listener) -> Iterator[Case]:
    def invalid(account: Recorded) -> None:
        _secrets(stack)(account)
        api.answers |= dict.fromkeys(("/answers", "/me"), b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")

    def refused(account: Recorded) -> None:
        invalid(account)
        account.refuse["PutItem"] = CONDITION

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
    yield Case("ChatbotFunction", "an invalid token", event, invalid)
    yield Case("ChatbotFunction", "the refusal does not contain the used signature", event, refused)


def worker() -> Iterator[Case]:
    fails: dict[str, Any] = {"request_id": "r", "payload": {"fails": "not now"}}
    poison = {"request_id": "r", "payload": {"poison": "bad"}}

    def opened(*, forced: bool) -> Callable[[Recorded], None]:
        health = {"state": "OPEN", "forced": forced, "changes": [], "permits": {}}
        item = {"downstream": {"S": "default"}, "version": {"N": "1"}, "writer": {"S": "w"}}
        return put(DOWNSTREAMS, item | {"health": {"S": json.dumps(health)}})

    def scheduled_and_died(account: Recorded) -> None:
        rule = {"base_seconds": 7200, "cap_seconds": 7200, "jitter": "none"}
        account.parameters = dict.fromkeys(account.parameters, json.dumps({"default": rule}))
        account.refuse["CreateSchedule"] = "ConflictException"
        died = {
            "request_id": {"S": "r"},
            "status": {"S": "RUNNING"},
            "attempts": {"N": "1"},
            "claim": {"S": "another"},
            "lease_until": {"N": "1700000000"},
            "last_attempt_at": {"S": "2027-01-15T07:59:00.000Z"},
            "payload_hash": {"S": parse_message(json.dumps(fails)).payload_hash},
        }
        account.tables.put(LEDGER, died)

    for name, body, arrange in (
        ("poison", poison, put(LEDGER)),
        ("a retry by the queue's delay", fails, put(LEDGER)),
        ("a died attempt whose retry is scheduled", fails, scheduled_and_died),
        ("held back", poison, opened(forced=True)),
        ("a probe closes the breaker", {"request_id": "r", "payload": {}}, opened(forced=False)),
    ):
        yield Case("WorkerFunction", name, message(body, "work"), arrange)


def of_stack(stack: Stack, jobs: list[str], machines: list[str], callers: list[str], api: Listener) -> Iterator[Case]:
    """The cases of each function that the stack has."""
    cases = [*process_registrar(jobs[0], [jobs[0], *machines[:1]]), *worker(), *chatbot(stack, api)]
    for job in jobs:
        cases += [*starter(job), *janitor(job), *closed(job)]
    for machine in machines:
        cases += with_child(machine)
    for caller in callers:
        cases += with_caller(jobs[0], caller)
    cases.append(Case("TokenRefresherFunction", "the schedule", {}, _secrets(stack)))
    cases.append(Case("RetryReportFunction", "the schedule", {}, put(LEDGER)))
    return (case for case in cases if case.function in stack.resources)
