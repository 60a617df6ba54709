"""Facts of Glue: the limit of a job's runs, their pages and stops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import pytest

from dev.emulator.aws import EmbeddedAws
from tests.facts.facts import Fact, Facts, code_of, documented
from tests.facts.workflows import ROLE, unique
from tests.simulation.aws import glue
from tests.simulation.frozen import freeze, thaw


class Job(ABC):
    """A job whose runs last until they are stopped."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def call(self, operation: str, **fields: Any) -> dict[str, Any] | str:
        """The answer to a call about this job, or the error's code."""

    def start(self) -> str:
        """StartJobRun: the run's id, or the error's code."""
        answer = self.call("start_job_run")
        return answer if isinstance(answer, str) else str(answer["JobRunId"])


class EngineJob(Job):
    """A job of the embedded AWS."""

    def __init__(self, aws: EmbeddedAws, runs: int = 5) -> None:
        super().__init__(unique("job"))
        self._client, s3 = aws.client("glue"), aws.client("s3")
        s3.create_bucket(Bucket="scripts")
        s3.put_object(Bucket="scripts", Key="sleep.py", Body=b"import time\ntime.sleep(3600)\n")
        command = {"Name": "pythonshell", "ScriptLocation": "s3://scripts/sleep.py"}
        limit = {"MaxConcurrentRuns": runs}
        self._client.create_job(Name=self.name, Role=ROLE, Command=command, ExecutionProperty=limit)

    def call(self, operation: str, **fields: Any) -> dict[str, Any] | str:
        answer: dict[str, Any] = {}
        code = code_of(lambda: answer.update(getattr(self._client, operation)(JobName=self.name, **fields)))
        return answer if code == "accepted" else code


class SimulatedJob(Job):
    """A job of the simulated AWS."""

    def __init__(self, runs: int = 5) -> None:
        super().__init__("job")
        self._jobs = glue.jobs(job=runs)

    def call(self, operation: str, **fields: Any) -> dict[str, Any] | str:
        self._jobs, answer = glue.perform(self._jobs, operation, freeze({"JobName": self.name, **fields}), 0.0)
        response: dict[str, Any] = thaw(answer.value)
        return answer.error or response


type MakeJob = Callable[..., Job]
FACTS: Facts[MakeJob] = Facts()


@FACTS.row(
    "GetJobRuns has the newest run first, in pages.",
    source=documented("Glue Web API, GetJobRuns, MaxResults and NextToken"),
    expected=([[2, 1], [0]], False),
)
def pages_of_runs(make: MakeJob) -> Any:
    job = make()
    started = [job.start() for _ in range(3)]
    first: Any = job.call("get_job_runs", MaxResults=2)
    second: Any = job.call("get_job_runs", MaxResults=2, NextToken=first["NextToken"])
    job.call("batch_stop_job_run", JobRunIds=started)
    pages = [[started.index(run["Id"]) for run in page["JobRuns"]] for page in (first, second)]
    return pages, "NextToken" in second


@FACTS.row(
    "A start above MaxConcurrentRuns is refused. A stop names the runs that it stops, and no unknown one.",
    source=documented("Glue Web API, StartJobRun, ConcurrentRunsExceededException; BatchStopJobRun"),
    expected=["ConcurrentRunsExceededException", ["first"]],
)
def limit_of_runs(make: MakeJob) -> Any:
    job = make(runs=1)
    first = job.start()
    refused = job.start()
    stopped: Any = job.call("batch_stop_job_run", JobRunIds=[first, "jr_unknown"])
    names = {first: "first"}
    return [refused, [names[entry["JobRunId"]] for entry in stopped["SuccessfulSubmissions"]]]


@FACTS.row(
    "A call about a job that does not exist is refused.",
    source=documented("Glue Web API, StartJobRun and GetJobRuns, EntityNotFoundException"),
    expected=["EntityNotFoundException"] * 2,
)
def missing_job(make: MakeJob) -> list[Any]:
    job = make()
    job.name = "none"
    return [job.start(), job.call("get_job_runs")]


@pytest.mark.parametrize("fact", FACTS, ids=attrgetter("name"))
def test_glue(fact: Fact[MakeJob], aws: EmbeddedAws) -> None:
    fact.check(embedded=partial(EngineJob, aws), simulated=SimulatedJob)
