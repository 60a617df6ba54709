"""Cases of the starter, the janitor and the registrar: one for each branch with different calls."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from slotkeeper.slots.request import execution_name
from tests.least_privilege.cases import DAY, Case, Item, message, number, put
from tests.least_privilege.recording import Recorded
from tests.support.cold_functions import RESPONSE_URL
from tests.support.in_process_tables import SLOTS

REQUEST = {"process": "p", "request_id": "order-1"}


def process(job: str, **more: Item) -> Item:
    return {
        "process_name": {"S": "p"},
        "slot_limit": {"N": "1"},
        "slots_in_use": {"N": "0"},
        "holders": {"M": {}},
        "waiting": {"M": {}},
        "target": {"S": job},
    } | more


def held(state: str, job: str = "", **entry: Item) -> Item:
    """Attributes of a process whose only slot has been held for two days."""
    entry |= {"state": {"S": state}, "since": number(time.time() - 2 * DAY)} | ({"job": {"S": job}} if job else {})
    return {"slots_in_use": {"N": "1"}, "holders": {"M": {"p-1": {"M": entry}}}}


WAITING = {
    "waiting": {
        "M": {
            "normal": {
                "M": {
                    "receipt_handle": {"S": "handle-waiting"},
                    "sequence": {"S": "0" * 40},
                    "receives": {"N": "1"},
                    "priority": {"S": "normal"},
                    "weight": {"N": "1"},
                    "since": {"N": "1700000000"},
                    "execution": {"S": "p-waiting"},
                    "hidden_until": {"N": "9999999999"},
                }
            }
        }
    }
}


def starter(job: str) -> Iterator[Case]:
    sent = message(REQUEST, "requests.fifo")
    name = execution_name("p", "order-1", 1)

    def ran_before(account: Recorded) -> None:
        put(SLOTS, process(job, **WAITING))(account)
        account.execution(name, "SUCCEEDED")

    function = "StarterFunction"
    yield Case(function, "a free slot", sent, put(SLOTS, process(job, **WAITING)))
    yield Case(function, "no free slot", sent, put(SLOTS, process(job, **held("RUNNING"))))
    yield Case(function, "paused", sent, put(SLOTS, process(job, paused={"BOOL": True})))
    yield Case(function, "no such process", sent, put(SLOTS))
    yield Case(function, "a malformed item", sent, put(SLOTS, process(job, slot_limit={"S": "1"})))
    yield Case(function, "not a request", message("{", "requests.fifo"), put(SLOTS))
    yield Case(function, "the request has run before", sent, ran_before)
    old = message(REQUEST, "requests.fifo", age=14 * DAY)
    yield Case(function, "the request has waited too long", old, put(SLOTS, process(job, **held("RUNNING"))))


def janitor(job: str) -> Iterator[Case]:
    def ended(status: str = "ABORTED", alive: bool = False, **item: Item) -> Callable[[Recorded], None]:
        def arrange(account: Recorded) -> None:
            put(SLOTS, process(job, **item))(account)
            account.execution("p-1", status, json.dumps(REQUEST | {"attempt": 1, "arguments": {}}))
            account.age_executions(DAY)
            account.jobs = {job: {"Name": job}}
            state = "RUNNING" if alive else "STOPPED"
            account.runs = [{"Id": "jr_1", "JobRunState": state, "Arguments": {"--slotkeeper-execution": "p-1"}}]

        return arrange

    function = "JanitorFunction"
    quiet = held("RUNNING", job, quiet_since=number(time.time() - DAY))
    yield Case(function, "no processes", {}, put(SLOTS))
    yield Case(function, "a reserved slot, not started", {}, put(SLOTS, process(job, **held("RESERVED"), **WAITING)))
    yield Case(function, "a drifted counter", {}, put(SLOTS, process(job, slots_in_use={"N": "1"})))
    yield Case(function, "a request waits although a slot is free", {}, put(SLOTS, process(job, **WAITING)))
    gone = WAITING["waiting"]["M"]["normal"]["M"] | {"hidden_until": {"N": "1700000000"}}
    overdue = {"waiting": {"M": {"normal": {"M": gone}}}, "paused": {"BOOL": True}}
    yield Case(function, "a waiting request's message does not come back", {}, put(SLOTS, process(job, **overdue)))
    yield Case(function, "its run lives", {}, ended(alive=True, **held("RUNNING", job)))
    yield Case(function, "its run lives again", {}, ended(alive=True, **quiet))
    yield Case(function, "the first check of a run", {}, ended(**held("RUNNING", job)))
    yield Case(function, "the second check of a run", {}, ended(**quiet, **WAITING))
    yield Case(function, "the workflow has kept its request", {}, ended("FAILED"))

    function = "ExecutionClosedFunction"
    closed = message({"detail": {"name": "p-1", "status": "ABORTED"}}, "status-events")
    yield Case(function, "its run lives", closed, ended(alive=True, **held("RUNNING", job)))
    yield Case(function, "its run lives again", closed, ended(alive=True, **quiet))
    yield Case(function, "the first check", closed, ended(**held("RUNNING", job)))
    yield Case(function, "the second check", closed, ended(**quiet, **WAITING))
    yield Case(function, "nothing was confirmed", closed, ended(**held("RESERVED"), **WAITING))
    yield Case(function, "it holds no slot", closed, ended())


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
            read = {"Item": {"holders": {"M": {"p-1": {"M": {"task_token": {"S": caller}}}}}}}
            answer = {"TaskToken": caller, **({"Output": "{}"} if "SUCCEEDED" in cause else {"Error": "E"})}
            account.history = [
                {"taskSucceededEventDetails": {"output": json.dumps(read)}},
                {"taskScheduledEventDetails": {"parameters": json.dumps(answer)}},
            ]

        return arrange

    running = held("RUNNING", target, task_token={"S": caller})
    sent = message(REQUEST | {"task_token": caller}, "requests.fifo")
    yield Case("StarterFunction", "the request of a caller, no such process", sent, put(SLOTS))
    closed = message({"detail": {"name": "p-1", "status": "ABORTED"}}, "status-events")
    for function, event in (("JanitorFunction", {}), ("ExecutionClosedFunction", closed)):
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
        return {
            "RequestType": request,
            "ResponseURL": RESPONSE_URL,
            "StackId": "stack",
            "RequestId": "request",
            "LogicalResourceId": "Process",
            "ResourceProperties": properties,
        } | ({"OldResourceProperties": properties | {"Target": before}} if before else {})

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
    jobs = deployment("Update") | {"ResourceType": "Custom::PermittedJobs"}
    jobs["ResourceProperties"] = {"SampleJob": "", "JobArns": [f"arn:aws:glue:us-east-1:123456789012:job/{job}"]}
    yield Case(function, "a job is in use", jobs, there(process("another", **held("RUNNING", "another"))))


def registered_state_machine(target: str) -> Case:
    properties = {"ProcessName": "p", "SlotLimit": "3", "Target": target}
    event = {
        "RequestType": "Create",
        "ResponseURL": RESPONSE_URL,
        "StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/slotkeeper/1",
        "RequestId": "request",
        "LogicalResourceId": "Process",
        "ResourceProperties": properties,
    }
    return Case("ProcessRegistrarFunction", "a new process with a state machine", event, put(SLOTS))
