"""glue_jobs: a job's concurrency limit, and pages of runs."""

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from dev.emulator.aws import EmbeddedAws
from tests.support.waiting import wait_until


def test_a_job_keeps_its_limit_and_an_update_without_one_resets_it(
    aws: EmbeddedAws, glue_job: Callable[..., str]
) -> None:
    glue = aws.client("glue")
    name = glue_job("pass\n", runs=4)
    command = {"Name": "pythonshell", "ScriptLocation": "s3://scripts/other.py"}
    before = glue.get_job(JobName=name)["Job"]["ExecutionProperty"]
    glue.update_job(JobName=name, JobUpdate={"Role": "any", "Command": command})
    after = glue.get_job(JobName=name)["Job"]["ExecutionProperty"]
    assert (before, after) == ({"MaxConcurrentRuns": 4}, {"MaxConcurrentRuns": 1})


def test_runs_are_paged_from_the_newest(aws: EmbeddedAws, glue_job: Callable[..., str]) -> None:
    glue = aws.client("glue")
    name = glue_job("pass\n")
    started = [glue.start_job_run(JobName=name)["JobRunId"] for _ in range(3)]
    first = glue.get_job_runs(JobName=name, MaxResults=2)
    second = glue.get_job_runs(JobName=name, MaxResults=2, NextToken=first["NextToken"])
    answered = [run["Id"] for run in first["JobRuns"] + second["JobRuns"]]
    assert answered == started[::-1]
    assert "NextToken" not in second
    wait_until(
        lambda: all(run["JobRunState"] == "SUCCEEDED" for run in glue.get_job_runs(JobName=name)["JobRuns"]),
        "the runs' end",
    )


def test_the_runs_of_an_unknown_job_are_an_error(aws: EmbeddedAws) -> None:
    with pytest.raises(ClientError, match="EntityNotFoundException"):
        aws.client("glue").get_job_runs(JobName="unknown")
