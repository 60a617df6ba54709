"""Makes the process that the stack's parameters name, as a CloudFormation custom resource.

A process that is there keeps its limit, whatever the parameter says now, because operators have set it since; only its
Glue job follows the parameter. When the stack goes, the process stays in the table, which is retained.
"""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
import os
from typing import Any

import boto3
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper import custom_resource
from slotkeeper.clients import PATIENT
from slotkeeper.observability import logger
from slotkeeper.processes import Processes, check_settings

_processes = Processes(boto3.client("dynamodb", config=PATIENT), os.environ["SLOT_TABLE_NAME"])
_glue = boto3.client("glue", config=PATIENT)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> None:
    """Answers CloudFormation in every case."""
    properties = event["ResourceProperties"]
    # A new name is a new resource for CloudFormation, which then asks to delete the old one: and that is refused.
    name = properties.get("ProcessName", "process")
    try:
        data = {}
        if event["RequestType"] != "Delete":
            before = event.get("OldResourceProperties", {})
            data["Created"] = str(_register(properties, before)).lower()
    except Exception as error:
        logger.exception("Could not make the process")
        custom_resource.answer(event, name, failed=f"{type(error).__name__}: {error}")
    else:
        custom_resource.answer(event, name, data=data)


@custom_resource.until_the_role_is_known
def _register(properties: dict[str, Any], before: dict[str, Any]) -> bool:
    name, job_name = properties["ProcessName"], properties["JobName"]
    slot_limit = int(properties["SlotLimit"])
    check_settings(name, slot_limit, job_name)
    job = _glue.get_job(JobName=job_name)["Job"]
    if job.get("MaxRetries", 0):
        # A retry by Glue is a run that no slot stands for.
        raise ValueError(f"Glue job {job_name} has MaxRetries {job['MaxRetries']}; it must be 0: a retry takes no slot")
    created = _processes.create(name, slot_limit, job_name)
    if created:
        logger.info("Made the process", process_name=name)
    elif before.get("ProcessName") == name and _processes.change_job(name, job_name, before["JobName"]):
        # The job is the template's business, not an operator's: the one before may be gone with this very update.
        logger.info("Gave the process its new job", process_name=name, job=job_name)
    else:
        logger.info("The process was there; left as it is", process_name=name)
    return created


cold_start.over()
