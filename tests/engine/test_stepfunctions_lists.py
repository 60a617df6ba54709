"""stepfunctions_lists: redrives in lists of executions, and descriptions without data."""

from collections.abc import Callable

import pytest

from tests.engine.conftest import ROLE, MachineMaker
from tests.engine.test_stepfunctions_children import WAIT


def test_a_list_has_the_redrives_of_executions_and_can_be_filtered_by_them(machine: MachineMaker) -> None:
    arn, client = machine(WAIT), machine.client
    plain, first, second = (machine.start(arn) for _ in range(3))
    for execution in (first, second):
        client.stop_execution(executionArn=execution)
        client.redrive_execution(executionArn=execution)
    pages = client.get_paginator("list_executions").paginate(
        stateMachineArn=arn, redriveFilter="REDRIVEN", PaginationConfig={"PageSize": 1}
    )
    redriven = [[entry["executionArn"] for entry in page["executions"]] for page in pages]
    assert redriven == [[second], [first]]
    others = client.list_executions(stateMachineArn=arn, redriveFilter="NOT_REDRIVEN")["executions"]
    assert [entry["executionArn"] for entry in others] == [plain]
    entries = client.list_executions(stateMachineArn=arn, statusFilter="RUNNING")["executions"]
    assert [entry["redriveCount"] for entry in entries] == [1, 1, 0]
    assert ["redriveDate" in entry for entry in entries] == [True, True, False]
    for execution in (plain, first, second):
        client.stop_execution(executionArn=execution)


def test_a_description_of_metadata_has_no_data(machine: MachineMaker) -> None:
    states = {"Break": {"Type": "Fail", "Error": "E", "Cause": "C"}}
    execution = machine.start(machine(states), {"a": 1})
    machine.end_of(execution)
    described = machine.client.describe_execution(executionArn=execution, includedData="METADATA_ONLY")
    assert described["status"] == "FAILED"
    assert not described.keys() & {"input", "output", "error", "cause"}


@pytest.mark.parametrize("kind", ["STANDARD", "EXPRESS"])
def test_a_state_machine_has_its_type(machine: MachineMaker, unique: Callable[[str], str], kind: str) -> None:
    """Needs no patch: `process add` refuses an Express workflow by it."""
    definition = '{"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}}'
    arn = machine.client.create_state_machine(name=unique("typed"), definition=definition, roleArn=ROLE, type=kind)[
        "stateMachineArn"
    ]
    assert machine.client.describe_state_machine(stateMachineArn=arn)["type"] == kind
