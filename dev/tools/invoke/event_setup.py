"""Create what a sample event needs: its process, secret, object or aborted execution.

For example, the request of `starter/full` waits because the process `full` has no slot, and `chatbot/replay` is refused
because its signature was used before. Everything is created before the call, and can be created twice.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dev.emulator.chat_service import CLIENT_ID, CLIENT_SECRET
from dev.emulator.chatbot_client import first_key
from dev.tools.function_folders import own_module
from dev.tools.invoke.function_stack import WAITING_STATE, DeployedFunction, event_folders
from dev.tools.sign_event import SAMPLE_MOMENT, freshen
from slotkeeper.aws.dynamodb import number
from slotkeeper.chatbot.token import ITEM_NAME
from slotkeeper.retry.ledger import Claimed, Ledger
from slotkeeper.retry.message import Message
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.intake import accept
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.plan import PlannedStart
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.rate import Rate, milliseconds
from slotkeeper.slots.request import MAX_BODY_BYTES, Request
from slotkeeper.slots.request_table import Leaving, RequestTable, granted_as
from slotkeeper.token import TokenTable

PROCESSES = {"sample": 3, "full": 0}  # name -> limit; the job does not run
JOBS = ("orders-job", "better-orders-job")
# Event -> the event to call before it.
AFTER = {
    "starter/redelivery": "happy",
    "starter/repeated": "happy",
    "starter/reused_id": "happy",
    "starter/sent_again": "too_late",
    "chatbot/replay": "happy",
    "worker/redelivery": "redelivery",
    "worker/reused_id": "redelivery",
    "process_registrar/update_limit": "create",
    "process_registrar/update_job": "create",
    "process_registrar/delete": "create",
    "token_refresher/ask_delivered_twice": "ask",
}
CLOSED_SECONDS = 120.0
Event = dict[str, Any]


class EventSetup:
    """Creates what the events of one function need, in a stack that has no other users."""

    def __init__(self, function: DeployedFunction) -> None:
        self._function = function
        self._folder = function.folder
        self._client = function.aws.client
        self.names = function.names
        self._now = time.time()

    def before(self, path: Path) -> Path | None:
        """The event to call before the one in this file; None if there is none."""
        name = AFTER.get(f"{self._folder}/{path.stem}") if self._is_sample(path) else None
        return path.with_name(f"{name}.json") if name else None

    def prepare(self, path: Path) -> Any:
        """Create what the event needs, and return the event with current times and signature."""
        event = json.loads(path.read_text(encoding="utf-8"))
        name = path.stem if self._is_sample(path) else ""
        if isinstance(event, dict):
            if maker := getattr(self, f"_{self._folder}", None):
                event = maker(name, event)
            if own := own_module(self._folder, "event_setup"):
                own.prepare(name, self._client, self.names)
            for record in event.get("Records", []):
                self._of_this_stack(record)
                if name:
                    self._sent_now(record)
            if "ResponseURL" in event:
                event |= {"ResponseURL": self._function.response_url}
        return event

    def _of_this_stack(self, record: Event) -> None:
        """Name the stack's own queue as the source. The samples have the names of a stack `slotkeeper`."""
        *start, name = record.get("eventSourceARN", "").split(":")
        if url := self.names.get(name.removeprefix("slotkeeper-").removesuffix(".fifo")):
            record["eventSourceARN"] = ":".join([*start, url.rpartition("/")[2]])

    def _sent_now(self, record: Event) -> None:
        """Set the record's times to now. The samples' times are in 2100, those of expired messages in the past."""
        attributes = record.get("attributes", {})
        for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp"):
            if name in attributes:
                attributes[name] = str(min(int(attributes[name]), int(self._now * 1000)))
        due = record.get("messageAttributes", {}).get("not_before")
        if due:
            due["stringValue"] = str(int(due["stringValue"]) - SAMPLE_MOMENT + int(self._now))

    # ------------------------------------------------------------------------------------------------- by function

    def _starter(self, name: str, event: Event) -> Event:
        self._make_processes()
        if name == "too_large":
            record = event["Records"][0]
            record["body"] = record["body"].replace("...", "." * MAX_BODY_BYTES)
        if name == "early":
            self._create("early", 1, rate=Rate(1, 3600))
            self._client("dynamodb").update_item(
                TableName=self.names["SlotTable"],
                Key={"process_name": {"S": "early"}},
                UpdateExpression="SET next_start = :due",
                ExpressionAttributeValues={":due": number(milliseconds(self._now + 600))},
            )
        if name == "doorbell":
            self._queue(Request("sample", {}, "2012-07"))
        if name == "timed_doorbell":
            a_second_ago = datetime.fromtimestamp(self._now - 1, UTC).isoformat()
            self._queue(Request("full", {}, "2012-07", start_before=a_second_ago))
            event["Records"][0]["body"] = Bell("full", self._now).to_json()
        if name == "malformed_process":
            item = {"process_name": {"S": "malformed"}, "slot_limit": {"S": "10"}}
            self._client("dynamodb").put_item(TableName=self.names["SlotTable"], Item=item)
        return event

    def _janitor(self, name: str, event: Event) -> Event:
        self._make_processes()
        if name == "scheduled_run":
            # Its starter died long ago, after reserving the slot and before starting the workflow.
            execution = self._queue(Request("sample", {}, "2012-07"))
            grants = Grants(self._client("dynamodb"), self.names["SlotTable"])
            if seen := grants.read("sample"):
                grants.grant(seen, [PlannedStart(execution, 1)], 0, 1.0)
        return event

    def _ending(self, name: str, event: Event) -> Event:
        self._make_processes()
        message = json.loads(event["Records"][0]["body"]) if name not in ("", "unknown_execution") else {}
        if name == "ended_without_start":
            cancelled = self._queue(Request(message["process"], {}, "2012-08"))
            leaving = Leaving(cancelled, "CANCELLED", "Cancelled", "by an operator")
            self._requests.leave(message["process"], [leaving], self._now)
        if "detail" in message:
            self._end(message["detail"])
        return event

    def _process_registrar(self, _name: str, event: Event) -> Event:
        glue = self._client("glue")
        for job in JOBS:
            with suppress(glue.exceptions.AlreadyExistsException):
                glue.create_job(Name=job, Role="role", Command={"Name": "pythonshell"})
        return event

    def _chatbot(self, _name: str, event: Event) -> Event:
        self._give_credentials()
        secret = self._client("secretsmanager").get_secret_value(SecretId=self.names["SigningKeySecret"])
        return freshen(event, first_key(secret["SecretString"]), self._now) if "headers" in event else event

    def _token_refresher(self, name: str, event: Event) -> Event:
        self._give_credentials()
        if name == "ask":
            # The chatbot acquires the lock before it invokes the refresher.
            table = TokenTable(self._client("dynamodb"), self.names["TokenTable"])
            table.acquire(ITEM_NAME, table.read(ITEM_NAME), event["release_code"], time.time() + 60)
        return event

    def _retry_report(self, name: str, event: Event) -> Event:
        if name == "scheduled":
            ledger = Ledger(self._client("dynamodb"), self.names["RequestLedgerTable"])
            message = Message("order-1", {})
            claim = ledger.claim(message, "a-delivery", self._now - 3600, 60)
            if isinstance(claim, Claimed):
                ledger.record(message, claim, {"when": self._now, "counted": True}, "HTTP 503", "Retryable")
        return event

    # ------------------------------------------------------------------------------------------------------ helpers

    def _make_processes(self) -> None:
        for name, limit in PROCESSES.items():
            self._create(name, limit)

    def _create(self, name: str, limit: int, **settings: Any) -> None:
        Processes(self._client("dynamodb"), self.names["SlotTable"]).create(name, limit, "a-job", **settings)

    @property
    def _requests(self) -> RequestTable:
        return RequestTable(self._client("dynamodb"), self.names["RequestTable"], self.names["SlotTable"])

    def _queue(self, request: Request) -> str:
        """Add the row of a request that was received a minute ago and is queued; return its execution's name."""
        received = self._now - 60
        accept(self._requests, request, "a-message", received, "1", received)
        return request.execution_name

    def _give_credentials(self) -> None:
        value = json.dumps({"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET})
        secret = self.names["ApiCredentialsSecret"]
        self._client("secretsmanager").put_secret_value(SecretId=secret, SecretString=value)

    def _is_sample(self, path: Path) -> bool:
        return path.resolve().parent in event_folders(self._folder)

    def _end(self, detail: Event) -> None:
        """Create the request of a status event, whose workflow may have recorded its outcome, and the execution."""
        request = json.loads(detail["input"])
        started = request["process"], self._queue(Request(request["process"], {}, request["request_id"]))
        self._requests.mark_started(*started, granted_as(1, 0), self._now)
        outcomes = Outcomes(self._client("dynamodb"), self.names["RequestTable"])
        if detail["status"] == "SUCCEEDED":
            outcomes.succeeded(*started, self._now)
            return  # the execution is not read
        if detail["error"] == "RequestFailed":
            outcomes.failed(*started, self._now, *detail["cause"].split(": ", 1))
        self._close(detail)

    def _close(self, detail: Event) -> None:
        """Create the execution of a status event. `detail`: of the event; its input, status and error count."""
        name, status = detail["name"], detail["status"]
        machine = self.names["Workflow"]
        stepfunctions = self._client("stepfunctions")
        state = {"Type": "Fail", "Error": detail["error"]} if status == "FAILED" else WAITING_STATE
        timeout = {"TimeoutSeconds": 1} if status == "TIMED_OUT" else {}
        definition = {"StartAt": "Only", "States": {"Only": state}, **timeout}
        stepfunctions.update_state_machine(stateMachineArn=machine, definition=json.dumps(definition))
        with suppress(stepfunctions.exceptions.ExecutionAlreadyExists):
            stepfunctions.start_execution(stateMachineArn=machine, name=name, input=detail["input"])
        arn = f"{machine.replace(':stateMachine:', ':execution:')}:{name}"
        if status == "ABORTED":
            stepfunctions.stop_execution(executionArn=arn)
        deadline = time.monotonic() + CLOSED_SECONDS
        while stepfunctions.describe_execution(executionArn=arn)["status"] == "RUNNING":
            if time.monotonic() > deadline:
                raise TimeoutError(f"execution {name} did not end within {CLOSED_SECONDS:.0f} s")
            time.sleep(0.02)
