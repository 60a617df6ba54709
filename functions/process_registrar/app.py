"""Two custom resources: the process in the stack's parameters, and the targets that the stack's roles permit.

Custom::Process: an existing process keeps its limit, even if the parameter differs, because operators may have changed
it. Only its target follows the parameter. After the stack is deleted, the process stays in the table, which is
retained.

Custom::PermittedJobs: an update that would remove a Glue job or a state machine is refused while a request holds a slot
for it. CloudFormation calls this before it changes the roles, and changes the process's target after that.
"""

from __future__ import annotations

from slotkeeper import cold_start
from slotkeeper.next_step import next_step

# isort: split
import os
from collections.abc import Mapping
from typing import Any

import boto3
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.aws import custom_resource
from slotkeeper.aws.clients import client_config
from slotkeeper.observability import logger
from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.processes import Processes, check_settings
from slotkeeper.slots.targets import check_key, check_place, check_type, is_state_machine, kind_of, matches

# Long timeouts: no request waits for a deployment.
_client_config = client_config(read_timeout=15, attempts=5, connect_timeout=2)
_processes = Processes(boto3.client("dynamodb", config=_client_config), os.environ["SLOT_TABLE_NAME"])
_glue = boto3.client("glue", config=_client_config)
_stepfunctions = boto3.client("stepfunctions", config=_client_config)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> None:
    """Handle a custom resource event. CloudFormation is answered in every case."""
    properties = event["ResourceProperties"]
    is_check = event.get("ResourceType") == "Custom::PermittedJobs"
    # After a change of the name CloudFormation requests the deletion of the old resource, which has no effect.
    name = "permitted-jobs" if is_check else properties.get("ProcessName", "process")
    try:
        data = {}
        before = event.get("OldResourceProperties", {})
        if event["RequestType"] == "Delete":
            pass
        elif is_check:
            _check_targets_in_use(properties, before)
        else:
            data["Created"] = str(_register(properties, before, event["StackId"])).lower()
    except Exception as error:
        logger.exception("Refused the custom resource", logical_id=event["LogicalResourceId"])
        custom_resource.answer(event, name, failed=f"{type(error).__name__}: {error}")
    else:
        custom_resource.answer(event, name, data=data)


@custom_resource.until_the_role_is_known
def _register(properties: dict[str, Any], before: dict[str, Any], stack_id: str) -> bool:
    name, target = properties["ProcessName"], properties["Target"]
    slot_limit = int(properties["SlotLimit"])
    check_settings(name, slot_limit, target)
    if is_state_machine(target):
        _check_state_machine(target, stack_id, properties.get("KmsKeyArn", ""))
    else:
        _check_job(target)
    created = _processes.create(name, slot_limit, target)
    if created:
        logger.info("Added the process", process_name=name)
    elif before.get("ProcessName") == name and _processes.change_target(name, target, before.get("Target", "")):
        # The template owns the target, not the operators: this update may delete the previous job.
        logger.info("Changed the target of the process", process_name=name, target=target)
    else:
        logger.info("The process exists already; nothing was changed", process_name=name)
    return created


def _check_state_machine(target: str, stack_id: str, key: str) -> None:
    _, _, _, region, account, _ = stack_id.split(":", 5)
    check_place(target, account, region)
    try:
        # Without the definition, which a key of its own may encrypt.
        described = _stepfunctions.describe_state_machine(stateMachineArn=target, includedData="METADATA_ONLY")
    except _stepfunctions.exceptions.StateMachineDoesNotExist:
        raise ValueError(f"state machine {target} does not exist; create it before you deploy with it") from None
    check_type(target, described)
    check_key(target, described, key)


def _check_job(target: str) -> None:
    job = _glue.get_job(JobName=target)["Job"]
    if job.get("MaxRetries", 0):
        # Glue's own retry is a run without a slot.
        raise ValueError(
            f"Glue job {target} has MaxRetries {job['MaxRetries']}; it must be 0, because a retry runs without a slot"
        )
    if job.get("JobRunQueuingEnabled"):
        # With it Glue accepts a run that it cannot start, and fails it after 15 minutes. Without it Glue raises
        # ConcurrentRunsExceededException, which the workflow retries (Glue guide, "AWS Glue job run statuses").
        raise ValueError(
            f"Glue job {target} has JobRunQueuingEnabled; turn it off, because Glue fails runs that it queues"
        )


@custom_resource.until_the_role_is_known
def _check_targets_in_use(properties: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    deleted = {before.get("SampleJob", "")} - {properties["SampleJob"]}
    for process in _processes.all():
        if isinstance(process, MalformedProcess):
            raise ValueError(
                f"cannot read which targets are in use: {process}. Repair the item, then deploy again: "
                f"{next_step('process repair', process.process)}"
            )
        for execution, holder in process.holders.items():
            if holder.is_lease:  # it runs code, not the target
                continue
            # A RESERVED holder has no target yet; its workflow will confirm this one.
            target = holder.target or process.target
            parameter, permitted = _permitted_by(properties, target)
            if target in deleted or not matches(target, permitted):
                raise ValueError(
                    f"{execution} holds a slot of process {process.name} for {kind_of(target).noun} {target}, which "
                    f"this update would remove. Nothing was changed. Either keep it in {parameter}, or let its runs "
                    f"end: {next_step('process pause', process.name)}, wait until "
                    f"{next_step('status', process.name)} shows no holder, deploy, "
                    + next_step("process resume", process.name)
                )


def _permitted_by(properties: Mapping[str, Any], target: str) -> tuple[str, list[str]]:
    """The parameter that permits a target of this kind, and the names or ARNs that the roles permit."""
    if is_state_machine(target):
        return "MoreStateMachineArns", properties["StateMachineArns"]
    names = [arn.rpartition("/")[2] for arn in properties["JobArns"]]
    return "MoreGlueJobArns (not the sample job, which is deleted)", names


cold_start.over()
