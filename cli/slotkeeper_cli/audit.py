"""The audit log: a line for each change that an operator makes, with who, when, what and why it was allowed.

The line is written to the stack's log group before the change, so that there is no change without it.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper_cli.context import current_context
from slotkeeper_cli.errors import CommandFailed, CommandRefused
from slotkeeper_cli.formatting import iso


def audit(action: str, **details: Any) -> None:
    """Write what is about to be done, and the caller as STS identifies it.

    Raises:
        CommandRefused: it could not be written, so nothing may be changed.
        CommandFailed: likewise, and the command has made a change before this one.
    """
    context = current_context()
    logs, group = context.stack.client("logs"), context.stack.outputs["AuditLogGroupName"]
    now = time.time()
    stream = iso(now)[:10]
    try:
        who = context.stack.client("sts").get_caller_identity()["Arn"]
        line = {"action": action, "at": iso(now), "by": who, "stack": context.stack.name, **details}
        with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
            logs.create_log_stream(logGroupName=group, logStreamName=stream)
        event = {"timestamp": int(now * 1000), "message": json.dumps(line, ensure_ascii=False)}
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])
    except (BotoCoreError, ClientError) as error:
        if context.has_audited:
            raise CommandFailed(
                f"the audit line of {action} could not be written, so it stopped there: {error}. What was done before "
                f"is in {group}; run this again for the rest"
            ) from error
        raise CommandRefused(f"the audit line could not be written, so nothing was changed: {error}") from error
    context.has_audited = True
