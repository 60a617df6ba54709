"""glue_runs: scripts as processes, the concurrency limit, timeout, stop, error message."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dev.emulator.aws import EmbeddedAws
from tests.engine.conftest import PLACE_HELD_SECONDS, lines
from tests.support.waiting import wait_until

NOTE_ARGUMENTS = "import sys, pathlib\npathlib.Path(sys.argv[-1]).write_text('\\n'.join(sys.argv[1:]))\n"
SLEEP = "import time\ntime.sleep(3600)\n"
# A script whose child would outlive it, unless a stop reaches the whole group.
WITH_CHILD = """
import subprocess, sys, pathlib
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
pathlib.Path(sys.argv[-1]).write_text(str(child.pid))
child.wait()
"""


def run_of(aws: EmbeddedAws, name: str, run_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = aws.client("glue").get_job_run(JobName=name, RunId=run_id)["JobRun"]
    return answer


def ended(aws: EmbeddedAws, name: str, run_id: str) -> dict[str, Any]:
    def read() -> dict[str, Any] | None:
        run = run_of(aws, name, run_id)
        return run if run.get("CompletedOn") else None

    return wait_until(read, f"the end of {run_id}")


@pytest.mark.parametrize(("command", "key"), [("pythonshell", "with.py"), ("glueetl", "scripts/without-suffix")])
def test_a_script_gets_its_arguments_as_words(
    aws: EmbeddedAws, glue_job: Callable[..., str], tmp_path: Path, command: str, key: str
) -> None:
    name = glue_job(NOTE_ARGUMENTS, command=command, key=key, DefaultArguments={"--mode": "job's", "--part": "1"})
    out = tmp_path / "out"
    started = aws.client("glue").start_job_run(JobName=name, Arguments={"--mode": "run's", "--out": str(out)})
    run = ended(aws, name, started["JobRunId"])
    assert run["JobRunState"] == "SUCCEEDED"
    assert [word for word in lines(out) if not word.startswith("--JOB") and word not in (name, run["Id"])] == [
        "--mode",
        "run's",
        "--part",
        "1",
        "--out",
        str(out),
    ]


def test_times_are_finer_than_a_second(aws: EmbeddedAws, glue_job: Callable[..., str]) -> None:
    name = glue_job("import time\ntime.sleep(0.3)\n")
    run = ended(aws, name, aws.client("glue").start_job_run(JobName=name)["JobRunId"])
    assert (run["CompletedOn"] - run["StartedOn"]).total_seconds() >= 0.3
    assert run["StartedOn"].microsecond or run["CompletedOn"].microsecond
    assert run["ExecutionTime"] >= 1


def test_a_run_above_the_limit_is_refused_until_another_no_longer_counts(
    aws: EmbeddedAws, glue_job: Callable[..., str]
) -> None:
    glue = aws.client("glue")
    name = glue_job("pass\n", runs=1)
    first = glue.start_job_run(JobName=name)["JobRunId"]
    with pytest.raises(ClientError, match="ConcurrentRunsExceededException"):
        glue.start_job_run(JobName=name)
    # F3: the run is SUCCEEDED, and still counts as concurrent.
    second = wait_until(lambda: start_or_none(glue, name), "the place to be given back")
    runs = {run["Id"]: run for run in glue.get_job_runs(JobName=name)["JobRuns"]}
    assert runs[first]["JobRunState"] == "SUCCEEDED"
    kept = runs[second]["StartedOn"] - runs[first]["CompletedOn"]
    assert kept.total_seconds() >= float(PLACE_HELD_SECONDS) / 2


def start_or_none(glue: Any, name: str) -> str | None:
    try:
        run_id: str = glue.start_job_run(JobName=name)["JobRunId"]
    except glue.exceptions.ConcurrentRunsExceededException:
        return None
    return run_id


def test_a_failed_run_shows_the_exception_and_not_the_traceback(aws: EmbeddedAws, glue_job: Callable[..., str]) -> None:
    name = glue_job("raise ValueError('no rows in part 7')\n")
    run = ended(aws, name, aws.client("glue").start_job_run(JobName=name)["JobRunId"])
    assert (run["JobRunState"], run["ErrorMessage"]) == ("FAILED", "ValueError: no rows in part 7")


def test_a_missing_script_fails_the_run(aws: EmbeddedAws, glue_job: Callable[..., str]) -> None:
    name = glue_job("pass\n")
    aws.client("s3").delete_object(Bucket="scripts", Key=f"{name}.py")
    run = ended(aws, name, aws.client("glue").start_job_run(JobName=name)["JobRunId"])
    assert run["JobRunState"] == "FAILED"
    assert f"{name}.py" in run["ErrorMessage"]


def test_the_runs_timeout_overrides_the_jobs(aws: EmbeddedAws, glue_job: Callable[..., str]) -> None:
    name = glue_job(SLEEP, Timeout=60)
    run = ended(aws, name, aws.client("glue").start_job_run(JobName=name, Timeout=1)["JobRunId"])
    assert (run["JobRunState"], run["Timeout"]) == ("TIMEOUT", 1)


def test_a_stop_ends_the_script_and_its_children(
    aws: EmbeddedAws, glue_job: Callable[..., str], tmp_path: Path
) -> None:
    glue = aws.client("glue")
    name = glue_job(WITH_CHILD)
    out = tmp_path / "child"
    run_id = glue.start_job_run(JobName=name, Arguments={"--out": str(out)})["JobRunId"]
    child = int(wait_until(lambda: lines(out), "the script's child")[0])
    answer = glue.batch_stop_job_run(JobName=name, JobRunIds=[run_id, "jr_unknown"])
    assert [entry["JobRunId"] for entry in answer["SuccessfulSubmissions"]] == [run_id]
    assert answer["Errors"][0]["ErrorDetail"]["ErrorCode"] == "EntityNotFoundException"
    assert run_of(aws, name, run_id)["JobRunState"] in ("STOPPING", "STOPPED")
    assert ended(aws, name, run_id)["JobRunState"] == "STOPPED"
    wait_until(lambda: not alive(child), "the child's end")


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
