"""`make run TARGET=workflow` in a small form: a state machine in the slots, and a caller that collects its results."""

from __future__ import annotations

from dev.scenarios.slots.slot_report import Parameters
from dev.scenarios.slots.target_scenario import measure
from dev.scenarios.slots.target_stack import create_machines
from tests.e2e.deployed_stack import DeployedStack
from tests.scenarios.reports import failing, run_of


def test_every_claim_of_the_run_with_a_state_machine_holds(stack: DeployedStack) -> None:
    # The run ends when its queue is empty, and an earlier test may have left a request that waits.
    stack.aws.client("sqs").purge_queue(QueueUrl=stack.outputs["RequestQueueUrl"])
    parameters = Parameters(requests=6, limit=2, fail=0.2, target="workflow")
    report = measure(stack.aws, create_machines(stack.aws), parameters, run_of())
    assert failing(report) == {}
    assert [report[name] for name in ("requests", "succeeded", "failed")] == [6, 5, 1]
    # The limit is not known if another test has restored the table some minutes ago: a restore may add the process.
    assert (report["most_at_work"]["weight"], report["most_at_work"]["limit"] in (2, None)) == (2, True)
    assert list(report["more"].values()) == [3, 3]
