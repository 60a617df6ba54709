"""The starter, the janitor and the registrar: a case for every branch that calls something else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from slotkeeper.slots.request import execution_name
from tests.fuzz.cold_functions import RESPONSE_URL
from tests.least_privilege.cases import DAY, Case, Item, message, number, put
from tests.least_privilege.recording import Recorded
from tests.support.in_process_tables import SLOTS

REQUEST = {"process": "p", "request_id": "order-1"}


def process(job: str, **more: Item) -> Item:
    return {
        "process_name": {"S": "p"},
        "slot_limit": {"N": "1"},
        "slots_in_use": {"N": "0"},
        "holders": {"M": {}},
        "job_name": {"S": job},
    } | more


def held(state: str, job: str = "", **entry: Item) -> Item:
    """The one slot is taken, since two days."""
    entry |= {"state": {"S": state}, "since": number(time.time() - 2 * DAY)} | ({"job": {"S": job}} if job else {})
    return {"slots_in_use": {"N": "1"}, "holders": {"M": {"p-1": {"M": entry}}}}


WAITING = {
    "waiting": {
        "M": {
            "receipt_handle": {"S": "handle-waiting"},
            "sequence": {"S": "0" * 40},
            "receives": {"N": "1"},
            "since": {"N": "1700000000"},
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
    yield Case(function, "there is room", sent, put(SLOTS, process(job, **WAITING)))
    yield Case(function, "no room", sent, put(SLOTS, process(job, **held("RUNNING"))))
    yield Case(function, "paused", sent, put(SLOTS, process(job, paused={"BOOL": True})))
    yield Case(function, "no such process", sent, put(SLOTS))
    yield Case(function, "an item of another kind", sent, put(SLOTS, process(job, slot_limit={"S": "1"})))
    yield Case(function, "not a request", message("{", "requests.fifo"), put(SLOTS))
    yield Case(function, "its request has run before", sent, ran_before)
    old = message(REQUEST, "requests.fifo", age=14 * DAY)
    yield Case(function, "it has waited too long", old, put(SLOTS, process(job, **held("RUNNING"))))


def janitor(job: str) -> Iterator[Case]:
    def over(status: str = "ABORTED", alive: bool = False, **item: Item) -> Callable[[Recorded], None]:
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
    yield Case(function, "a round over nothing", {}, put(SLOTS))
    yield Case(function, "nobody has started it", {}, put(SLOTS, process(job, **held("RESERVED"), **WAITING)))
    yield Case(function, "a counter has drifted", {}, put(SLOTS, process(job, slots_in_use={"N": "1"})))
    yield Case(function, "somebody waits beside room", {}, put(SLOTS, process(job, **WAITING)))
    yield Case(function, "its run lives", {}, over(alive=True, **held("RUNNING", job)))
    yield Case(function, "its run lives again", {}, over(alive=True, **quiet))
    yield Case(function, "the first look", {}, over(**held("RUNNING", job)))
    yield Case(function, "the second look", {}, over(**quiet, **WAITING))
    yield Case(function, "it has kept its request itself", {}, over("FAILED"))

    function = "ExecutionClosedFunction"
    closed = message({"detail": {"name": "p-1", "status": "ABORTED"}}, "status-events")
    yield Case(function, "its run lives", closed, over(alive=True, **held("RUNNING", job)))
    yield Case(function, "its run lives again", closed, over(alive=True, **quiet))
    yield Case(function, "the first check", closed, over(**held("RUNNING", job)))
    yield Case(function, "the second check", closed, over(**quiet, **WAITING))
    yield Case(function, "nothing was confirmed", closed, over(**held("RESERVED"), **WAITING))
    yield Case(function, "it holds no slot", closed, over())


def process_registrar(job: str) -> Iterator[Case]:
    def deployment(request: str, before: str = "") -> dict[str, Any]:
        properties = {"ProcessName": "p", "SlotLimit": "3", "JobName": job}
        return {
            "RequestType": request,
            "ResponseURL": RESPONSE_URL,
            "StackId": "stack",
            "RequestId": "request",
            "LogicalResourceId": "Process",
            "ResourceProperties": properties,
        } | ({"OldResourceProperties": properties | {"JobName": before}} if before else {})

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
    yield Case(function, "the stack goes", deployment("Delete"), there())
    jobs = deployment("Update") | {"ResourceType": "Custom::PermittedJobs"}
    jobs["ResourceProperties"] = {"SampleJob": "", "JobArns": [f"arn:aws:glue:us-east-1:123456789012:job/{job}"]}
    yield Case(function, "a job is in use", jobs, there(process("another", **held("RUNNING", "another"))))
