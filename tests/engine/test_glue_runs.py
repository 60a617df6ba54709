"""glue_runs: scripts as processes, the concurrency limit, timeout, stop, error message."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dev.emulator.aws import EmbeddedAws
from dev.emulator.own_job import OwnJob
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


def test_each_run_of_a_local_script_reads_it_again_and_has_its_own_output(
    aws: EmbeddedAws, unique: Callable[[str], str], tmp_path: Path
) -> None:
    script, name = tmp_path / "load.py", unique("own")
    OwnJob(name, script, {"--day": "monday"}).create(aws)
    OwnJob(name, script, {"--day": "tuesday"}).create(aws)
    logs = aws.state_dir / "glue"
    read = "from awsglue.utils import getResolvedOptions\nimport sys\n"
    script.write_text(read + "print(getResolvedOptions(sys.argv, ['day'])['day'])\n")
    assert run_once(aws, name, "first")["JobRunState"] == "SUCCEEDED"
    script.write_text(read + "print('late', flush=True)\ngetResolvedOptions(sys.argv, ['hour'])\n")
    failed = run_once(aws, name, "second")
    assert failed["JobRunState"] == "FAILED"
    assert failed["ErrorMessage"].endswith("GlueArgumentError: the following arguments are required: --hour")
    output = {each: (logs / f"{each}.output.log").read_text() for each in ("first", "second")}
    assert output == {"first": "tuesday\n", "second": "late\n"}
    assert (logs / "first.error.log").read_text() == ""
    assert (logs / "second.error.log").read_text().startswith("Traceback")
    script.write_text("from awsglue.context import GlueContext\n")
    message = run_once(aws, name, "third")["ErrorMessage"]
    assert message.startswith(
        "ModuleNotFoundError: awsglue.context is not available here: the embedded Glue runs plain"
    )


def run_once(aws: EmbeddedAws, name: str, execution: str) -> dict[str, Any]:
    started = aws.client("glue").start_job_run(JobName=name, Arguments={"--slotkeeper-execution": execution})
    return ended(aws, name, started["JobRunId"])


def test_a_function_cannot_import_the_modules_of_glue_scripts(aws: EmbeddedAws, function: Callable[..., str]) -> None:
    name = function("import awsglue\ndef handler(event, context):\n    return 'imported'\n")
    answer = json.loads(aws.client("lambda").invoke(FunctionName=name)["Payload"].read())
    assert "No module named 'awsglue'" in answer["errorMessage"]


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
