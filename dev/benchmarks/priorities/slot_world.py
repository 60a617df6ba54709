"""The starter's real code and the workflow's steps on simulated services, in virtual time.

The workflow confirms, runs its job, releases and wakes with the protocol's expressions, as its states do. Nothing
fails, so neither the janitor nor a redelivery is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from dev.benchmarks.outage.simulated_table import SimulatedTable
from dev.benchmarks.outage.virtual_time import START, VirtualTime
from slotkeeper.slots.admission import Admitted, Starter, Waiting
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.process import TURN_SECONDS
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import CONFIRM_CONDITION, CONFIRM_UPDATE, RELEASE_CONDITION, RELEASE_UPDATE, Slots
from slotkeeper.slots.queues import RequestQueue, wake_next
from slotkeeper.slots.request import DEFAULT_PRIORITY, Priority, execution_name, message_group

from .fifo_queue import FifoQueue

VISIBILITY, RETENTION, MAX_RECEIVES = 180, 14 * 86400, 1000  # of template.yaml
CONTAINERS = 8  # more than the message groups of two processes
# Seconds, assumed for AWS: of a call; from a visible message to its invocation; of a state transition.
CALL = (0.005, 0.015)
DELIVERY = (0.02, 0.1)
TRANSITION = (0.02, 0.05)
TABLE, JOB = "slots", "job"


@dataclass(frozen=True)
class Job:
    """A request, and for how long its Glue job runs. `sent`: seconds since the start."""

    process: str
    sent: float
    seconds: float
    priority: Priority = DEFAULT_PRIORITY
    weight: int = 1


@dataclass
class Course:
    """What happened, in seconds since the start.

    Attributes:
        started: the start of each job's workflow, by the job's number.
        ended: the end of each job.
        releases: (second, process, weight in use afterwards).
    """

    started: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    releases: list[tuple[float, str, int]] = field(default_factory=list)
    receives: int = 0


class SlotWorld:
    """Processes by their limits, their queue, starters and workflows."""

    def __init__(self, limits: Mapping[str, int], seed: int, turn_seconds: int = TURN_SECONDS) -> None:
        self.course = Course()
        self._random = Random(seed)
        self._time = VirtualTime()
        self._table: Any = SimulatedTable("process_name", self._call)
        self._queue: Any = FifoQueue(self._time, VISIBILITY, self._call)
        self._jobs: list[Job] = []
        self._numbers: dict[str, int] = {}
        self._time.start(partial(self._set_up, limits, turn_seconds))

    def run(self, jobs: Iterable[Job], most: float = 1e6) -> Course:
        """Send each job's request at its time, and run until the last has ended, at most until second `most`.

        Raises:
            RuntimeError: a job has not ended by then.
        """
        self._jobs = list(jobs)
        for number, job in enumerate(self._jobs):
            name = execution_name(job.process, str(number), 1)
            self._numbers[name] = number
            self._time.at(START + job.sent, partial(self._send, number, job))
        self._time.run(most, lambda: len(self.course.ended) == len(self._jobs))
        self._time.end()
        if len(self.course.ended) < len(self._jobs):
            raise RuntimeError(f"{len(self._jobs) - len(self.course.ended)} jobs have not ended after {most:g} s")
        self.course.receives = self._queue.receives
        return self.course

    def start_execution(self, *, name: str, **_: Any) -> None:
        """Step Functions' operation: a repeated call for a running execution has no effect."""
        self._call()
        number = self._numbers[name]
        if number in self.course.started:
            return
        self.course.started[number] = self._time.elapsed
        self._time.start(partial(self._workflow, name, self._jobs[number], number))

    def _set_up(self, limits: Mapping[str, int], turn_seconds: int) -> None:
        processes = Processes(self._table, TABLE)
        for name, limit in limits.items():
            processes.create(name, limit, JOB, turn_seconds=turn_seconds)
        for _ in range(CONTAINERS):
            self._time.start(self._container)

    def _send(self, number: int, job: Job) -> None:
        body: dict[str, Any] = {"process": job.process, "request_id": str(number)}
        if job.priority != DEFAULT_PRIORITY:
            body["priority"] = job.priority
        if job.weight != 1:
            body["weight"] = job.weight
        self._queue.send(json.dumps(body), message_group(job.process, job.priority))

    def _container(self) -> None:
        slots, queue = Slots(self._table, TABLE), RequestQueue(self._queue, "requests", "dead")
        workflow: Any = self
        starter = Starter(slots, queue, Workflow(workflow, "workflow"), VISIBILITY, RETENTION, MAX_RECEIVES)
        while True:
            delivery = self._queue.receive()
            self._sleep(DELIVERY)
            admission = starter.admit(delivery, self._time.now)
            if isinstance(admission, Admitted):
                self._queue.delete(delivery)
            elif not isinstance(admission, Waiting):
                raise TypeError(f"nothing fails here, but the starter answered {admission}")

    def _workflow(self, name: str, job: Job, number: int) -> None:
        slots, queue = Slots(self._table, TABLE), RequestQueue(self._queue, "requests")
        self._sleep(TRANSITION)
        values = {":running": {"S": "RUNNING"}, ":none": {"M": {}}}
        self._update(job.process, CONFIRM_UPDATE, CONFIRM_CONDITION, values, {"#me": name, "#state": "state"})
        self._time.sleep(job.seconds)
        self.course.ended[number] = self._time.elapsed
        self._sleep(TRANSITION)
        item = self._update(job.process, RELEASE_UPDATE, RELEASE_CONDITION, {":one": {"N": "1"}}, {"#me": name})
        self.course.releases.append((self._time.elapsed, job.process, int(item["slots_in_use"]["N"])))
        self._sleep(TRANSITION)
        wake_next(slots, queue, job.process, self._time.now)

    def _update(
        self, process: str, update: str, condition: str, values: Mapping[str, Any], names: Mapping[str, str]
    ) -> dict[str, Any]:
        item: dict[str, Any] = self._table.update_item(
            Key={"process_name": {"S": process}},
            UpdateExpression=update,
            ConditionExpression=condition,
            ExpressionAttributeValues=values,
            ExpressionAttributeNames=names,
        )["Attributes"]
        return item

    def _call(self) -> None:
        self._sleep(CALL)

    def _sleep(self, bounds: tuple[float, float]) -> None:
        self._time.sleep(self._random.uniform(*bounds))
