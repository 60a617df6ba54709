"""The one reader of a stack: every answer of the command and of the console reads through it.

A reading is made once for all answers that need it at the same time, and is kept: in a command as long as it runs, in
the console for some seconds. Readings are bounded, and name the parts that they left out. Calls whose quota the janitor
needs wait for a budget (`stack_connection.BUDGETS`).

Errors of AWS pass through as ClientError or BotoCoreError, so that an answer can name what it could not read
(`unread.Search`). An error is not kept.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import batched
from typing import Any

from slotkeeper.retry.downstream.downstreams import MalformedHealth
from slotkeeper.retry.downstream.health import Health
from slotkeeper.slots.executions import Execution
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.rows import MAX_PAGES, Listed, QueuedRow, RequestRow
from slotkeeper_cli.audit_lines import Audited, read_audit
from slotkeeper_cli.conditions import Condition, stopped_event_source
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.process_rows import ProcessRows
from slotkeeper_cli.retries import read_downstreams
from slotkeeper_cli.row_search import MAX_KEYS
from slotkeeper_cli.slot_control import SlotControl, name_of
from slotkeeper_cli.stack_connection import (
    StackConnection,
    StackResource,
    all_queue_attributes,
    event_source_mappings,
    resources,
    template_of,
)
from slotkeeper_cli.target_checks import usual_seconds
from slotkeeper_cli.unread import Search, UnreadSource

ALARMS = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
# Executions that one answer describes, next to the list of the running ones.
MAX_DESCRIBED = 100
# Pages of 1,000 running executions that one answer lists.
MAX_RUNNING_PAGES = 5
_DAY = 86400.0
_MAX_ALARM_NAMES = 100  # CloudWatch API Reference, DescribeAlarms, AlarmNames


@dataclass(frozen=True)
class _Kept:
    """A reading that is made or was made, when it began, in seconds since the epoch, and for how long it serves."""

    result: Future[Any]
    at: float
    keeps: float


class Account:
    """Reads a stack.

    Args:
        keeps: seconds for which a reading serves all answers; infinite in a command.

    Attributes:
        control: the layer's objects, for all other reads.
    """

    def __init__(self, stack: StackConnection, keeps: float = math.inf) -> None:
        self.stack = stack
        self.control = SlotControl(stack)
        self._keeps = keeps
        self._kept: dict[tuple[Hashable, ...], _Kept] = {}
        self._lock = threading.Lock()

    # --------------------------------------------------------------------------------------------------- the mechanism

    def kept[Result](self, key: tuple[Hashable, ...], read: Callable[[], Result], keeps: float | None = None) -> Result:
        """The kept result of this key if it is young enough; otherwise what `read` returns now.

        Threads that ask at the same time share one call of `read`, and its error.

        Args:
            keeps: seconds; by default as long as this account keeps its readings.
        """
        longest = self._keeps if keeps is None else keeps
        with self._lock:
            now = time.time()
            found, reads = self._kept.get(key), False
            if found is None or now - found.at > longest:
                reads = True
                # A console may be open for days.
                for other, old in [*self._kept.items()]:
                    if old.result.done() and now - old.at > old.keeps:
                        del self._kept[other]
                found = self._kept[key] = _Kept(Future(), now, longest)
        if reads:
            try:
                found.result.set_result(read())
            except BaseException as error:
                with self._lock:
                    if self._kept.get(key) is found:
                        del self._kept[key]
                found.result.set_exception(error)
        result: Result = found.result.result()
        return result

    def forget(self) -> None:
        """Read everything again, since an action may have changed it."""
        with self._lock:
            self._kept.clear()

    # ---------------------------------------------------------------------------------------------------------- slots

    def processes(self) -> tuple[list[Process], list[MalformedProcess]]:
        """The processes by name, and an error for each malformed item: a Scan of SlotTable, a call per megabyte."""
        return self.kept(("processes",), self.control.read_all)

    def by_name(self) -> dict[str, Process | MalformedProcess]:
        """Every process by its name, also one whose item is malformed."""
        processes, malformed = self.processes()
        return {one.name: one for one in processes} | {one.process: one for one in malformed}

    def process(self, name: str) -> Process:
        """A process: one consistent GetItem. Raises NotFound; CommandFailed if its item is malformed."""
        return self.kept(("process", name), lambda: self.control.process(name))

    def item(self, name: str) -> Process | MalformedProcess | None:
        """A process, also one whose item is malformed: one consistent GetItem; None if there is none."""

        def read() -> Process | MalformedProcess | None:
            try:
                return self.control.slots.read(name)
            except MalformedProcess as error:
                return MalformedProcess(str(error), name)

        return self.kept(("item", name), read)

    def statuses(self, executions: Iterable[str]) -> Mapping[str, str]:
        """The status of executions of the workflow, by name; "" if Step Functions has no such execution.

        One list has the running ones, of at most MAX_RUNNING_PAGES pages; of the others, at most MAX_DESCRIBED are
        described. An execution that is missing in the answer was not read.
        """
        names = set(executions)
        running = names & self.running() if names else set[str]()
        found = dict.fromkeys(running, "RUNNING")
        described = sorted(names - running)[:MAX_DESCRIBED]
        for name, execution in zip(described, in_parallel(self.execution, described), strict=True):
            found[name] = execution.status if execution else ""
        return found

    def running(self) -> frozenset[str]:
        """The names of the running executions, of at most MAX_RUNNING_PAGES pages (ListExecutions)."""

        def read() -> frozenset[str]:
            pages = self.stack.client("stepfunctions").get_paginator("list_executions")
            listed = pages.paginate(
                stateMachineArn=self.stack.outputs["WorkflowArn"],
                statusFilter="RUNNING",
                PaginationConfig={"PageSize": 1000, "MaxItems": 1000 * MAX_RUNNING_PAGES},
            )
            return frozenset(one["name"] for page in listed for one in page["executions"])

        return self.kept(("running",), read)

    def execution(self, name: str) -> Execution | None:
        """An execution of the workflow; None if Step Functions has none of this name (DescribeExecution)."""
        return self.kept(("execution", name), lambda: self.control.workflow.describe(name))

    def usual_seconds(self, target: str) -> float | None:
        """The median duration of a target's newest successful runs; None if none is known."""
        return self.kept(("usual seconds", target), lambda: usual_seconds(self.stack, target))

    # ------------------------------------------------------------------------------------------------------- requests

    def queue(self, process: Process | MalformedProcess, max_pages: int = MAX_PAGES) -> Listed[QueuedRow]:
        """The queue of a process in its order: a call per megabyte, of at most `max_pages`."""
        name = name_of(process)
        return self.kept(("queue", name, max_pages), lambda: self.control.rows.queue(name, max_pages))

    def history(self, search: Search, process: str, since: float, until: float) -> list[RequestRow]:
        """The requests that have ended in a period, and those that have not ended, in the order of their sending.

        At most `process_rows.MAX_HISTORY_CALLS` calls. What could not be read is noted in `search`.

        Args:
            since, until: seconds since the epoch.
        """

        def read() -> tuple[list[RequestRow], list[UnreadSource]]:
            own = Search()
            reader = ProcessRows(own, self.control.rows, self.control.row_search, process)
            return reader.history(since, until), own.not_read

        rows, not_read = self.kept(("history", process, since, until), read)
        search.not_read += not_read
        return rows

    def newest_ends(self, process: str) -> Listed[RequestRow]:
        """The requests of a process that ended last, the last one first: one call, some 2,000 of them."""
        # An operator's clock may be behind those of the functions.
        read = partial(self.control.rows.history, process, 0.0, time.time() + _DAY, 1, newest_first=True)
        return self.kept(("newest ends", process), read)

    def request_ids(self, holders: Sequence[tuple[str, str]]) -> dict[str, str]:
        """The ids of requests by their executions, each given with its process: of the first MAX_KEYS, in one call."""
        names = tuple(holders[:MAX_KEYS])
        return self.kept(("request ids", *names), lambda: self.control.row_search.request_ids(names)) if names else {}

    def audit_lines(self, field: str = "", value: str = "", since: float = 0.0) -> Audited:
        """The lines of the operators' audit log of which a field has a value, as `read_audit` reads them."""
        return self.kept(("audit", field, value, since), lambda: read_audit(self.stack, field, value, since))

    # ----------------------------------------------------------------------------------------------- queues and alarms

    def queues(self) -> Mapping[str, Mapping[str, str]]:
        """The attributes of each deployed queue by its logical id: a call for each."""
        return self.kept(("queues",), lambda: all_queue_attributes(self.stack))

    def event_sources(self, queue: str) -> list[dict[str, Any]]:
        """The event source mappings of a queue, given by its logical id."""
        return self.kept(
            ("event sources", queue), lambda: event_source_mappings(self.stack, self.queues()[queue]["QueueArn"])
        )

    def stopped_event_source(self, search: Search, queue: str) -> list[Condition]:
        """The condition that a function receives the messages of a queue, if it fails; empty if it was not read."""
        mappings = search.try_read(f"event source of {queue}", lambda: self.event_sources(queue), None)
        return [] if mappings is None else stopped_event_source(queue, mappings)

    def resources(self) -> list[StackResource]:
        """Every resource of the stack (ListStackResources); kept, since only a deployment changes them."""
        return self.kept(("resources",), lambda: resources(self.stack), math.inf)

    def template(self) -> Mapping[str, Any]:
        """The deployed template's resources by logical id. Raises CommandFailed if the template is not JSON."""
        template = self.kept(("template",), lambda: template_of(self.stack), math.inf)
        found: Mapping[str, Any] = template["Resources"]
        return found

    def alarms(self) -> list[dict[str, Any]]:
        """The stack's alarms as CloudWatch describes them, each with its `LogicalId`: a call for 100."""

        def read() -> list[dict[str, Any]]:
            ids = {one.name: one.logical_id for one in self.resources() if one.kind in ALARMS}
            client, alarms = self.stack.client("cloudwatch"), []
            for names in batched(ids, _MAX_ALARM_NAMES, strict=False):
                answer = client.describe_alarms(AlarmNames=list(names), AlarmTypes=["MetricAlarm", "CompositeAlarm"])
                alarms += answer.get("MetricAlarms", []) + answer.get("CompositeAlarms", [])
            return [one | {"LogicalId": ids[one["AlarmName"]]} for one in alarms]

        return self.kept(("alarms",), read)

    def downstreams(self) -> dict[str, Health | MalformedHealth]:
        """The health of each downstream by its name: a Scan of DownstreamTable; empty without the worker."""
        return self.kept(("downstreams",), lambda: read_downstreams(self.stack))
