"""Two custom resources: the process in the stack's parameters, and the Glue jobs that the stack's roles permit.

Custom::Process: an existing process keeps its limit, even if the parameter differs, because operators may have changed
it. Only its Glue job follows the parameter. After the stack is deleted, the process stays in the table, which is
retained.

Custom::PermittedJobs: an update that would remove a Glue job is refused while a request holds a slot for it.
CloudFormation calls this before it changes the roles, and changes the process's job after that.
"""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import boto3
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.aws import custom_resource
from slotkeeper.aws.clients import client_config
from slotkeeper.observability import logger
from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.processes import Processes, check_settings

# Long timeouts: no request waits for a deployment.
_client_config = client_config(read_timeout=15, attempts=5, connect_timeout=2)
_processes = Processes(boto3.client("dynamodb", config=_client_config), os.environ["SLOT_TABLE_NAME"])
_glue = boto3.client("glue", config=_client_config)


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
            _check_jobs_in_use(properties, before)
        else:
            data["Created"] = str(_register(properties, before)).lower()
    except Exception as error:
        logger.exception("Refused the custom resource", logical_id=event["LogicalResourceId"])
        custom_resource.answer(event, name, failed=f"{type(error).__name__}: {error}")
    else:
        custom_resource.answer(event, name, data=data)


@custom_resource.until_the_role_is_known
def _register(properties: dict[str, Any], before: dict[str, Any]) -> bool:
    name, target = properties["ProcessName"], properties["JobName"]
    slot_limit = int(properties["SlotLimit"])
    check_settings(name, slot_limit, target)
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
    created = _processes.create(name, slot_limit, target)
    if created:
        logger.info("Added the process", process_name=name)
    elif before.get("ProcessName") == name and _processes.change_target(name, target, before["JobName"]):
        # The template owns the job, not the operators: this update may delete the previous job.
        logger.info("Changed the job of the process", process_name=name, job=target)
    else:
        logger.info("The process exists already; nothing was changed", process_name=name)
    return created


@custom_resource.until_the_role_is_known
def _check_jobs_in_use(properties: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    deleted = {before.get("SampleJob", "")} - {properties["SampleJob"]}
    for process in _processes.all():
        if isinstance(process, MalformedProcess):
            raise ValueError(f"cannot read which jobs are in use: {process}. Repair the item, then deploy again")
        for execution, holder in process.holders.items():
            job = holder.target or process.target  # a RESERVED holder has no job yet; its workflow will confirm this one
            if job in deleted or not _permits(properties["JobArns"], job):
                raise ValueError(
                    f"{execution} holds a slot of process {process.name} for Glue job {job}, which this update would "
                    "remove. Nothing was changed. Either keep the job in MoreGlueJobArns (not the sample job, which is "
                    f"deleted), or let its runs end: slotkeeper process pause {process.name}, wait until slotkeeper "
                    f"status {process.name} shows no holder, deploy, slotkeeper process resume {process.name}"
                )


def _permits(arns: Iterable[str], job: str) -> bool:
    """Whether a policy with these resources permits the job, with IAM's wildcards * and ?."""
    patterns = (re.escape(arn.rpartition("/")[2]).replace(r"\*", ".*").replace(r"\?", ".") for arn in arns)
    return any(re.fullmatch(pattern, job) for pattern in patterns)


cold_start.over()
