"""The deployed stack in a run: the acts of its users and operators, the current numbers, and the results."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import Snapshot
from dev.emulator.local_clients import local_client
from dev.scenarios.runner.audit import Journal
from dev.scenarios.runner.checks import check, check_none
from dev.scenarios.runner.janitor_clock import JanitorClock
from dev.scenarios.runner.scenario import CannotContinue, send_all
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.ending_queue import EndingQueue
from slotkeeper.slots.processes import Operations, Processes
from slotkeeper.slots.request_table import Leaving, RequestTable
from slotkeeper.slots.rows import RequestRow, RequestRows
from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.work_history import WorkHistory

from .receivers import ROLE, Receivers
from .slot_requests import MACHINE_PROCESS, PROCESS, Request, SentRequest

MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:month-summary"
ATTEMPTS = 8  # of the run's own calls, which faults and engine restarts affect too
JANITOR_PERIOD = 2.0  # seconds, while no ring is delivered


class SlotStack:
    """Clients of one deployed stack.

    Attributes:
        sent: the first message of each request of a producer.
    """

    def __init__(self, aws: EmbeddedAws, processes: Sequence[str] = (PROCESS,)) -> None:
        self.aws, self.outputs, self.names = aws, aws.outputs, processes
        self.dynamodb, self.sqs, self.stepfunctions, self.functions, self.events = (
            local_client(service, aws.endpoint, attempts=ATTEMPTS)
            for service in ("dynamodb", "sqs", "stepfunctions", "lambda", "events")
        )
        slots, requests = self.outputs["SlotTableName"], self.outputs["RequestTableName"]
        self.processes = Processes(self.dynamodb, slots)
        self.doorbell = Doorbell(self.sqs, self.outputs["DispatchQueueUrl"])
        self.operations = Operations(self.processes, self.doorbell)
        self._endings = EndingQueue(self.sqs, self.outputs["EndingQueueUrl"])
        self._rows, self._requests = RequestRows(self.dynamodb, requests), RequestTable(self.dynamodb, requests, slots)
        self.journal = Journal(aws.state_dir / "journal.jsonl", self.outputs)
        clients = (self.sqs, self.stepfunctions, self.events, local_client("sns", aws.endpoint))
        self.receivers = Receivers(self.outputs, *clients)
        self.sent: list[SentRequest] = []
        self.started = time.time()

    # ------------------------------------------------------------------------------------------ users and operators

    def upload(self, inputs: Mapping[str, bytes]) -> None:
        s3 = self.aws.client("s3")
        for key, body in inputs.items():
            s3.put_object(Bucket=self.outputs["DataBucketName"], Key=key, Body=body, ContentType="text/csv")

    def create_machine(self, limit: int) -> None:
        """Create MACHINE, and the process that runs it. Raises CannotContinue if the process exists."""
        definition = Path(__file__).with_name("month-summary.asl.json").read_text()
        self.stepfunctions.create_state_machine(name="month-summary", definition=definition, roleArn=ROLE)
        if not self.processes.create(MACHINE_PROCESS, limit, MACHINE):
            raise CannotContinue(f"process {MACHINE_PROCESS} exists already: remove it, so that this run can add it")

    def send(self, *requests: Request) -> None:
        """Send them for the first time. Raises CannotContinue."""
        self.sent += self.deliver(*requests)

    def deliver(self, *requests: Request) -> list[SentRequest]:
        """Send them as a producer would. Raises CannotContinue.

        A call that is repeated after a lost answer has no effect, since every entry has its deduplication id.
        """
        entries = {
            request.request_id: {
                "MessageBody": request.message(time.time()),
                "MessageGroupId": request.process,
                "MessageDeduplicationId": str(uuid4()),
            }
            for request in requests
        }
        answers = send_all(self.sqs, self.outputs["RequestQueueUrl"], entries)
        return [SentRequest(each, at, name) for each, (name, at) in zip(requests, answers, strict=True)]

    def cancel(self, process: str, execution: str) -> bool:
        """Cancel a request as an operator does; False if it is not queued any more."""
        leaving = Leaving(execution, "CANCELLED", "Cancelled", "by make run")
        is_cancelled = bool(self._requests.leave(process, [leaving], time.time()))
        self._endings.publish(process, [execution])
        self.doorbell.ring(Bell(process))
        return is_cancelled

    # ---------------------------------------------------------------------------------------------- current numbers

    def queue(self, process: str) -> list[str]:
        """The executions of the queued requests of a process, in their order."""
        return [each.queued.execution for each in self._rows.queue(process).rows]

    def listed(self, status: str) -> list[str]:
        """The newest executions of these processes with a status."""
        arn = self.outputs["WorkflowArn"]
        answer = self.stepfunctions.list_executions(stateMachineArn=arn, statusFilter=status, maxResults=1000)
        return [each["name"] for each in answer["executions"] if each["name"].rpartition("-")[0] in self.names]

    def rows(self) -> list[RequestRow]:
        """The rows of the run's requests."""
        listed = [row for name in self.names for row in self._rows.rows(name, max_pages=100).rows]
        return [each for each in listed if each.sent >= self.started - 1]

    def progress(self, elapsed: float, total: int, least: int, **counts: int | str) -> Snapshot:
        """The current numbers; the run has ended if nothing is left, and at least so many requests have ended.

        They are read in the order in which a request moves: what moves between two reads is counted twice and never
        missed, so the run does not seem to have ended.
        """
        received = queue_reading.total(self.sqs, self.outputs["RequestQueueUrl"])
        rows, running = self.rows(), len(self.listed("RUNNING"))
        items = {name: item for name, item in self.journal.read().items() if name in self.names}
        in_use = sum(item.weight for item in items.values())
        holders = sorted(name for item in items.values() for name in item.holders)
        unpublished = sum(row.ended is not None and row.is_unpublished for row in rows)
        left = received + running + in_use + unpublished + self.receivers.waiting()
        left += queue_reading.total(self.sqs, self.outputs["EndingQueueUrl"])
        states = Counter(row.state for row in rows if row.ended is not None)
        done = states.total() - states["RETURNED"] - states["REDRIVEN"]
        queued = received + sum(bool(each.place) for each in rows)
        return Snapshot(
            elapsed=elapsed,
            ended=done >= least and not (left or queued),
            done=done,
            total=total,
            gauges={name: (item.weight, 0 if item.paused else item.limit) for name, item in sorted(items.items())},
            counts={
                # Without what was counted twice, if all that end are known: faults send further requests.
                "queued": min(queued, least - done) if least else queued,
                "running": running,
                "succeeded": states["SUCCEEDED"],
                "failed": states["FAILED"],
                "without a start": done - states["SUCCEEDED"] - states["FAILED"],
                **counts,
            },
            details=f"{len(self.journal.changes)} writes; holders: {', '.join(holders) or 'none'}",
        )

    @contextmanager
    def without_doorbell(self) -> Iterator[None]:
        """Disable the event source of DispatchQueue. The janitor runs the system alone, more often than usual."""
        asked = self.sqs.get_queue_attributes(QueueUrl=self.outputs["DispatchQueueUrl"], AttributeNames=["QueueArn"])
        arn = asked["Attributes"]["QueueArn"]
        (mapping,) = self.functions.list_event_source_mappings(EventSourceArn=arn)["EventSourceMappings"]
        self.functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
        try:
            with JanitorClock(self.aws, JANITOR_PERIOD):
                yield
        finally:
            self.functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)

    # ------------------------------------------------------------------------------------------------ what is left

    def results(self) -> set[str]:
        """The keys of the results in the data bucket."""
        pages = self.aws.client("s3").get_paginator("list_objects_v2")
        listed = pages.paginate(Bucket=self.outputs["DataBucketName"], Prefix="output/")
        return {each["Key"] for page in listed for each in page.get("Contents", [])}

    def child_outputs(self, history: WorkHistory) -> dict[str, Any]:
        """The output of each child execution, by the name of its execution."""
        describe, prefix = self.stepfunctions.describe_execution, MACHINE.replace(":stateMachine:", ":execution:")
        names = [each.execution for each in history.work if each.succeeded]
        return {name: json.loads(describe(executionArn=f"{prefix}:{name}")["output"]) for name in names}

    def doorbell_was_dead(self, starts: int, limit: int) -> CheckResult:
        """No ring was delivered, although there were more starts than the first dispatches could make."""
        rings = queue_reading.total(self.sqs, self.outputs["DispatchQueueUrl"])
        finding = f"{rings} rings left on DispatchQueue, {starts} starts"
        return check("the janitor ran the system alone", rings > 0 if starts > limit else None, finding)


def results_are_those(history: WorkHistory, sent: Sequence[SentRequest], results: set[str]) -> CheckResult:
    """A result exists exactly if the job succeeded."""
    succeeded = {each.request_id for each in history.rows if each.state == "SUCCEEDED"}
    keys = {each.request.work["arguments"]["--output_key"]: each.request.request_id for each in sent}
    problems = {
        "succeeded without a result": sorted(k for k, name in keys.items() if name in succeeded and k not in results),
        "result without a success": sorted(k for k, name in keys.items() if name not in succeeded and k in results),
    }
    return check_none("each success has its result", problems, f"{len(results & keys.keys())} results")
