"""A line for every change that somebody makes by this command: who, when, what, and why it was allowed.

It goes to the stack's own log group before the change is made, so that no change is without its line.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper_cli.common import cli
from slotkeeper_cli.errors import Failed, Refused
from slotkeeper_cli.words import iso


def audit(action: str, **details: Any) -> None:
    """Writes what is about to be done, and by whom as STS knows them.

    Raises:
        Refused: it could not be written, so nothing may be changed.
        Failed: likewise, and the command has made a change before this one.
    """
    here = cli()
    logs, group = here.stack.client("logs"), here.stack.outputs["AuditLogGroupName"]
    now = time.time()
    stream = iso(now)[:10]
    try:
        who = here.stack.client("sts").get_caller_identity()["Arn"]
        line = {"action": action, "at": iso(now), "by": who, "stack": here.stack.name, **details}
        with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
            logs.create_log_stream(logGroupName=group, logStreamName=stream)
        event = {"timestamp": int(now * 1000), "message": json.dumps(line, ensure_ascii=False)}
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])
    except (BotoCoreError, ClientError) as error:
        if here.has_audited:
            raise Failed(
                f"the audit line of {action} could not be written, so it stopped there: {error}. What was done before "
                f"is in {group}; run this again for the rest"
            ) from error
        raise Refused(f"the audit line could not be written, so nothing was changed: {error}") from error
    here.has_audited = True
