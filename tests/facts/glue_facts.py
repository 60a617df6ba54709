"""Facts of Glue: the limit of a job's runs, their pages, stops and failures."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.facts.account import ANY_ROLE, Account
from tests.facts.facts import ASSUMED, DEPLOYED, EVERYWHERE, SIMULATED, Facts, NotShown, code_of, documented
from tests.facts.machines import CAUGHT, Machines, task

# As the sample job: it fails without arguments, and otherwise runs for a while.
SCRIPT = b"import sys, time\nif '--linger_seconds' not in sys.argv:\n    sys.exit('no arguments')\ntime.sleep(3600)\n"
ARGUMENTS = {"--input_key": "smoke", "--output_key": "smoke", "--linger_seconds": "300"}
KEPT = ("Role", "Command", "DefaultArguments", "MaxCapacity", "GlueVersion", "Timeout")  # of the sample job


class Job:
    """A job whose runs last until they are stopped."""

    def __init__(self, aws: Account, runs: int = 5) -> None:
        self.aws, self.name, self._client = aws, aws.name("job"), aws.client("glue")
        limit = {"MaxConcurrentRuns": runs}
        self._client.create_job(Name=self.name, ExecutionProperty=limit, MaxRetries=0, **self._properties())

    def _properties(self) -> dict[str, Any]:
        """The script and the role: of the sample job, if there is a stack."""
        if self.aws.has_stack:
            if not self.aws.stack.sample_job:
                raise NotShown("this stack runs your own Glue job; deploy one without GlueJobName to show it")
            sample = self._client.get_job(JobName=self.aws.stack.sample_job)["Job"]
            return {key: sample[key] for key in KEPT if sample.get(key)}
        if self.aws.place != SIMULATED:
            s3 = self.aws.client("s3")
            s3.create_bucket(Bucket="scripts")
            s3.put_object(Bucket="scripts", Key="job.py", Body=SCRIPT)
        return {"Role": ANY_ROLE, "Command": {"Name": "pythonshell", "ScriptLocation": "s3://scripts/job.py"}}

    def ask(self, operation: str, **fields: Any) -> Any:
        """The answer to a call about this job."""
        return getattr(self._client, operation)(JobName=self.name, **fields)

    def start(self) -> str:
        """StartJobRun: the run's id, or the error's code."""
        started: list[str] = []
        code = code_of(lambda: started.append(self.ask("start_job_run", Arguments=ARGUMENTS)["JobRunId"]))
        return started[0] if started else code


type MakeJob = Callable[..., Job]
FACTS = Facts("glue", EVERYWHERE, given=lambda aws: partial(Job, aws))


@FACTS.row(
    "GetJobRuns has the newest run first, in pages.",
    source=documented("Glue Web API, GetJobRuns, MaxResults and NextToken"),
    expected=([[2, 1], [0]], False),
    depends="FindGlueRun ends its search at the first page whose runs are older than the execution. Otherwise it must "
    "read all pages",
)
def pages_of_runs(make: MakeJob) -> Any:
    job = make()
    started = [job.start() for _ in range(3)]
    job.aws.wait(lambda: len(job.ask("get_job_runs")["JobRuns"]) == 3, "Glue to list the runs")
    first = job.ask("get_job_runs", MaxResults=2)
    second = job.ask("get_job_runs", MaxResults=2, NextToken=first["NextToken"])
    job.ask("batch_stop_job_run", JobRunIds=started)
    pages = [[started.index(run["Id"]) for run in page["JobRuns"]] for page in (first, second)]
    return pages, "NextToken" in second


@FACTS.row(
    "A start above MaxConcurrentRuns is refused, and a call about a job that does not exist. A stop names the runs "
    "that it stops, and no unknown one.",
    source=documented("Glue Web API, StartJobRun, ConcurrentRunsExceededException; BatchStopJobRun; GetJobRuns"),
    expected=["ConcurrentRunsExceededException", ["first"], "EntityNotFoundException", "EntityNotFoundException"],
)
def refused_starts(make: MakeJob) -> list[Any]:
    job = make(runs=1)
    first = job.start()
    refused = job.start()
    stopped = job.ask("batch_stop_job_run", JobRunIds=[first, "jr_unknown"])
    names = {first: "first"}
    job.name = "none"
    submitted = [names[entry["JobRunId"]] for entry in stopped["SuccessfulSubmissions"]]
    return [refused, submitted, job.start(), code_of(partial(job.ask, "get_job_runs"))]


@FACTS.row(
    "glue:startJobRun.sync fails with the run as JSON, its keys in alphabetical order, with ErrorMessage; and by its "
    "own name, if the job has its maximum of runs.",
    source=ASSUMED,
    expected=lambda seen: (
        (seen["failed"], seen["state"]) == ("States.TaskFailed", "FAILED")
        and seen["keys"] == sorted(seen["keys"])
        and "ErrorMessage" in seen["keys"]
        and seen["refused"] == "Glue.ConcurrentRunsExceededException"
    ),
    unlike={"failed": "States.TaskFailed", "state": "FAILED", "keys": ["Id", "ErrorMessage", "Attempt"]}
    | {"refused": "Glue.ConcurrentRunsExceededException"},
    on=DEPLOYED,
    depends="the mail, the event and the row state the reason of a failure: otherwise change failure_reason in "
    "slots/executions.py. F3: RunGlueJob retries a refusal in its slot: otherwise change the name in RunGlueJob and "
    "IsGlueRunKnownToHaveEnded",
)
def errors_of_a_task(make: MakeJob) -> dict[str, Any]:
    job = make(runs=1)
    machines = Machines(job.aws)
    machine = machines.create({"Run": task("glue:startJobRun.sync", {"JobName": job.name}, "States.ALL"), **CAUGHT})
    failed = json.loads(machines.end_of(machines.start(machine))["output"])
    # Glue counts an ended run for a while.
    job.aws.wait(lambda: job.start().startswith("jr_"), "Glue to permit another run")
    refused = json.loads(machines.end_of(machines.start(machine))["output"])
    run = json.loads(failed["Cause"])
    return {"failed": failed["Error"], "state": run["JobRunState"], "keys": [*run], "refused": refused["Error"]}
