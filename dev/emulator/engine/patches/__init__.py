"""The patches in their order of application. Each module states the AWS behavior that it adds, and the AWS page."""

import logging
import os
from importlib import import_module

log = logging.getLogger("slotkeeper.engine")

ORDER = (
    "dynamodb_writes",
    "glue_jobs",
    "glue_runs",
    "stepfunctions_start",
    "stepfunctions_jsonata",
    "stepfunctions_drives",
    "stepfunctions_expressions",
    "stepfunctions_redrive",
    "stepfunctions_tasks",
    "stepfunctions_glue",
    "stepfunctions_optimized",
    "stepfunctions_children",
    "stepfunctions_tokens",
    "stepfunctions_branches",
    "stepfunctions_lists",
    "stepfunctions_events",
    "stepfunctions_sdk_errors",
    "stepfunctions_test_state",
    "cloudformation_properties",
    "cloudformation_watching",
    "sqs_locks",
    "sqs_handles",
    "sqs_groups",
    "sqs_sizes",
    "sqs_redrive",
    "event_source_groups",
    "lambda_code",
    "lambda_endpoint",
    "lambda_layers",
    "lambda_packages",
    "lambda_logs",
    "schedules",
    "apigateway_responses",
    "injected_faults",
    "s3_downstream",
    "dynamodb_journal",
    "restarts",
)
# Patches that need a file, and the variable that names it.
BY_FILE = {
    "injected_faults": "SLOTKEEPER_ENGINE_FAULTS",
    "s3_downstream": "SLOTKEEPER_ENGINE_DOWNSTREAM",
    "dynamodb_journal": "SLOTKEEPER_ENGINE_JOURNAL",
    "restarts": "STATE_DIR",
}


def apply_all(without: set[str]) -> None:
    """Apply every patch except those in `without` and those whose file is not named."""
    unknown = without - set(ORDER)
    if unknown:
        raise SystemExit(f"SLOTKEEPER_ENGINE_WITHOUT names no such patch: {', '.join(sorted(unknown))}")
    for name in ORDER:
        if name in without or (name in BY_FILE and BY_FILE[name] not in os.environ):
            continue
        import_module(f"{__name__}.{name}").apply()
