"""stepfunctions_glue: a state starts a Glue run and waits for it; the effects of a stop and a timeout on the run."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.faults import Faults
from tests.engine.conftest import MachineMaker
from tests.support.waiting import wait_until

SYNC = "arn:aws:states:::glue:startJobRun.sync"
SLEEP = "import time\ntime.sleep(3600)\n"


def run_job(name: str, **fields: Any) -> dict[str, Any]:
    return {"Run": {"Type": "Task", "Resource": SYNC, "Arguments": {"JobName": name}, "End": True, **fields}}


def only_run(aws: EmbeddedAws, name: str) -> dict[str, Any]:
    def read() -> dict[str, Any] | None:
        runs = aws.client("glue").get_job_runs(JobName=name)["JobRuns"]
        return runs[0] if runs and runs[0]["JobRunState"] != "STARTING" else None

    return wait_until(read, f"a run of {name}")


def test_the_state_waits_for_the_run_and_gets_it(
    aws: EmbeddedAws, machine: MachineMaker, glue_job: Callable[..., str]
) -> None:
    name, started = glue_job("import time\ntime.sleep(0.3)\n"), time.time()
    run = json.loads(machine.end_of(machine.start(machine(run_job(name))))["output"])
    assert (run["JobName"], run["JobRunState"]) == (name, "SUCCEEDED")
    assert started <= run["CompletedOn"] / 1000 <= time.time()


def test_a_failed_run_is_a_failed_task_with_the_run_as_its_cause(
    machine: MachineMaker, glue_job: Callable[..., str]
) -> None:
    name = glue_job("raise ValueError('bad part')\n")
    description = machine.end_of(machine.start(machine(run_job(name))))
    cause = json.loads(description["cause"])
    assert description["error"] == "States.TaskFailed"
    assert (cause["JobRunState"], cause["ErrorMessage"]) == ("FAILED", "ValueError: bad part")
    assert description["cause"] == json.dumps(cause, sort_keys=True, separators=(",", ":"))  # as of AWS


def test_a_refused_start_has_glues_error(machine: MachineMaker) -> None:
    assert machine.end_of(machine.start(machine(run_job("unknown"))))["error"] == "Glue.EntityNotFoundException"


def test_without_sync_only_the_run_id_is_answered(machine: MachineMaker, glue_job: Callable[..., str]) -> None:
    states = run_job(glue_job("pass\n"), Resource=SYNC.removesuffix(".sync"))
    assert list(json.loads(machine.end_of(machine.start(machine(states)))["output"])) == ["JobRunId"]


def test_a_stopped_execution_stops_its_run(
    aws: EmbeddedAws, machine: MachineMaker, glue_job: Callable[..., str]
) -> None:
    name = glue_job(SLEEP)
    execution = machine.start(machine(run_job(name)))
    only_run(aws, name)
    machine.client.stop_execution(executionArn=execution)
    wait_until(lambda: only_run(aws, name)["JobRunState"] == "STOPPED", "the run to be stopped")


def test_with_leave_running_a_stop_does_not_stop_the_run(
    aws: EmbeddedAws, machine: MachineMaker, glue_job: Callable[..., str], faults: Faults, unique: Callable[[str], str]
) -> None:
    job, name = glue_job("import time\ntime.sleep(1)\n"), unique("unreached")
    faults.add("Run", "leave_running", execution=name)
    execution = machine.start(machine(run_job(job)), name=name)
    only_run(aws, job)
    machine.client.stop_execution(executionArn=execution)
    wait_until(lambda: only_run(aws, job)["JobRunState"] == "SUCCEEDED", "the run's own end")


def test_a_timed_out_task_leaves_its_run_alive_even_if_the_execution_is_stopped_later(
    aws: EmbeddedAws, machine: MachineMaker, glue_job: Callable[..., str], tmp_path: Path
) -> None:
    end = tmp_path / "end"
    script = f"import pathlib, time\nwhile not pathlib.Path({str(end)!r}).exists():\n    time.sleep(0.05)\n"
    name = glue_job(script, Timeout=1000)
    catch = [{"ErrorEquals": ["States.Timeout"], "Next": "After"}]
    states = run_job(name, TimeoutSeconds=1, Catch=catch) | {"After": {"Type": "Wait", "Seconds": 3600, "End": True}}
    execution = machine.start(machine(states))
    wait_until(lambda: "WaitStateEntered" in machine.history(execution), "the timeout")
    assert only_run(aws, name)["JobRunState"] == "RUNNING"
    machine.client.stop_execution(executionArn=execution)
    end.touch()
    wait_until(lambda: only_run(aws, name)["JobRunState"] == "SUCCEEDED", "the run's own end")
