"""The audit log: one line for each change by an operator, with the caller, the time, the change and its checks.

The line is written to the stack's log group before the change, so that no change is made without a line. So a line does
not prove that the change was made.
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
    """Write the audit line of the change that follows, with the caller as STS identifies it.

    Raises:
        CommandRefused: the line could not be written, so nothing may be changed.
        CommandFailed: the line could not be written, and the command has made a change before this one.
    """
    context = current_context()
    logs, group = context.stack.client("logs"), context.stack.outputs["AuditLogGroupName"]
    now = time.time()
    stream = iso(now)[:10]
    try:
        line = {"action": action, "at": iso(now), "by": context.stack.caller, "stack": context.stack.name, **details}
        with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
            logs.create_log_stream(logGroupName=group, logStreamName=stream)
        event = {"timestamp": int(now * 1000), "message": json.dumps(line, ensure_ascii=False)}
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])
    except (BotoCoreError, ClientError) as error:
        if context.has_audited:
            raise CommandFailed(
                f"the audit line of {action} could not be written: {error}. The command stopped there. The changes "
                f"before it are in the log group {group}; run the command again for the rest."
            ) from error
        raise CommandRefused(f"the audit line could not be written: {error}. Nothing was changed.") from error
    context.has_audited = True
