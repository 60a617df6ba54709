"""Where work runs and waits: Glue, EventBridge Scheduler and S3, over their simulations."""

from __future__ import annotations

import io
from typing import Any

from botocore.response import StreamingBody

from tests.simulation.account.queues import ALLOWED
from tests.simulation.account.service import Parameters, Refusal, Service, unfrozen
from tests.simulation.aws import glue, s3, scheduler
from tests.simulation.frozen import Record, freeze, record, thaw


class Glue(Service):
    """Jobs by their names.

    Attributes:
        jobs: GetJob's answers.
        stopped: the ids of the runs that were stopped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[str, Parameters] = {}
        self._runs = record({})
        self.stopped: list[str] = []

    def make_job(self, name: str, **described: Any) -> None:
        """Create or replace a job, which has no runs."""
        self.jobs[name] = {"Name": name, **described}
        self._runs = self._runs.with_fields(**glue.jobs(**{name: 1_000}).fields)

    def run_job(self, name: str, state: str, arguments: dict[str, str], **fields: Any) -> str:
        """Add a run; return its id. `fields`: started and ended, in seconds since the epoch."""
        now = self.clock()
        self._runs = glue.another(self._runs, name, freeze(arguments), now)
        runs: list[Record] = list(self._runs[name]["runs"])
        changed = runs[-1].with_fields(**{"state": state, "ended": 0 if state in glue.ALIVE else now, **fields})
        self._runs = self._runs.with_fields(**{name: self._runs[name].with_fields(runs=(*runs[:-1], changed))})
        return str(changed["id"])

    def _GetJob(self, parameters: Parameters) -> Parameters:
        if parameters["JobName"] not in self.jobs:
            raise Refusal("EntityNotFoundException", f"Job {parameters['JobName']} not found.")
        return {"Job": self.jobs[parameters["JobName"]]}

    def _GetJobRuns(self, parameters: Parameters) -> Parameters:
        self._GetJob(parameters)
        return self._on_glue("get_job_runs", parameters)

    def _BatchStopJobRun(self, parameters: Parameters) -> Parameters:
        self.stopped += parameters["JobRunIds"]
        return self._on_glue("batch_stop_job_run", parameters)

    def _on_glue(self, operation: str, parameters: Parameters) -> Parameters:
        self._runs, answer = glue.perform(self._runs, operation, freeze(parameters), self.clock())
        return dict(unfrozen(answer))


class Scheduler(Service):
    """One group of schedules. `schedules`: the parameters of CreateSchedule, by name."""

    def __init__(self) -> None:
        super().__init__()
        self._schedules = scheduler.schedules()
        self.schedules: dict[str, Parameters] = {}

    def drop_schedule(self, name: str) -> None:
        """Let a schedule have fired."""
        self._schedules = self._schedules.without(name)
        del self.schedules[name]

    def _CreateSchedule(self, parameters: Parameters) -> Parameters:
        assert ALLOWED.fullmatch(parameters["Target"]["Input"])
        answer = self._on_schedules("create_schedule", parameters)
        self.schedules[parameters["Name"]] = parameters
        return answer

    def _GetSchedule(self, parameters: Parameters) -> Parameters:
        self._on_schedules("get_schedule", parameters)
        return self.schedules[parameters["Name"]]

    def _DeleteSchedule(self, parameters: Parameters) -> Parameters:
        answer = self._on_schedules("delete_schedule", parameters)
        del self.schedules[parameters["Name"]]
        return answer

    def _ListSchedules(self, _: Parameters) -> Parameters:
        return {"Schedules": list(self.schedules.values())}

    def _on_schedules(self, operation: str, parameters: Parameters) -> Parameters:
        asked = freeze({name: value for name, value in parameters.items() if name != "ClientToken"})
        self._schedules, answer = scheduler.perform(self._schedules, operation, asked, self.clock())
        return dict(unfrozen(answer))


class S3(Service):
    """One bucket. `objects`: contents by key."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, bytes] = {}

    def _GetObject(self, parameters: Parameters) -> Parameters:
        if parameters["Key"] not in self.objects:
            raise Refusal("NoSuchKey")
        content = self.objects[parameters["Key"]]
        body = StreamingBody(io.BytesIO(content), len(content))
        return {"Body": body, "ContentLength": len(content), "ETag": '"etag"'}

    def _PutObject(self, parameters: Parameters) -> Parameters:
        put = freeze(parameters | {"Body": parameters["Body"].read()})  # botocore has wrapped it in a file
        changed, answer = s3.perform(freeze(self.objects), "put_object", put, self.clock())
        self.objects = thaw(changed)
        return dict(unfrozen(answer))

    def _ListObjectsV2(self, parameters: Parameters) -> Parameters:
        return {"Contents": [{"Key": key} for key in self.objects if key.startswith(parameters["Prefix"])]}

    def _DeleteObjects(self, parameters: Parameters) -> Parameters:
        for one in parameters["Delete"]["Objects"]:
            self.objects.pop(one["Key"], None)
        return {}
