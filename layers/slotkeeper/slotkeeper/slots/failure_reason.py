"""The reason why a request failed, in words: Glue's own error message, if the failure's cause contains it.

The workflow's `reason` (state RunGlueJob) is the same for its e-mail and event, or the run's state if Glue gives no
message. Unlike the cause, a reason does not contain the run's arguments, which events must not contain. It is
found there without a regular expression: the Step Functions guide does not state that its JSONata supports them, and
an expression that fails in a Catch ends the workflow with its slot taken.
"""

from __future__ import annotations

import json
import re
from typing import Any

# The workflow's last state puts the error's name before the cause.
_ERROR_NAME = re.compile(r"\A[A-Za-z]+\.[A-Za-z]+: (?=\{)")
# In the run's arguments the same text is escaped, so it does not match there.
_MESSAGE = re.compile(r'"ErrorMessage"\s*:\s*("(?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})*)("?)')
_RUN_ID = re.compile(r'"Id"\s*:\s*"(jr_\w+)"')
_CUT_BEFORE_MESSAGE = "unknown: the cause was cut before Glue's error message, since the run's arguments are long"


def failure_reason(cause: str) -> str:
    """Glue's error message, if the cause is the JobRun of an unsuccessful run; otherwise the cause.

    Step Functions returns the JobRun as JSON with its keys in alphabetical order, so the arguments of the run precede
    the message. The workflow cuts a cause after 8,000 characters in FailedRequestQueue, and after 30,000 in the
    execution. A message that was cut ends with "...".
    """
    text = _ERROR_NAME.sub("", cause)
    try:
        run = json.loads(text)
    except (ValueError, RecursionError):
        reason = _of_cut_run(text) if text.startswith("{") else ""
    else:
        reason = _of_run(run) if isinstance(run, dict) else ""
    # Half of a surrogate pair, escaped, is valid JSON, but cannot be printed.
    return reason.strip().encode(errors="replace").decode() or cause


def failed_run(cause: str) -> str:
    """The id of the Glue run, if the cause is its JobRun; otherwise empty. It is also the run's log stream."""
    found = _RUN_ID.search(cause)
    return found[1] if found else ""


def _of_run(run: dict[str, Any]) -> str:
    if message := run.get("ErrorMessage"):
        return str(message)
    if state := run.get("JobRunState"):
        return f"Glue run {run.get('Id', 'of unknown id')} ended as {state}, without an error message"
    return ""


def _of_cut_run(text: str) -> str:
    if found := _MESSAGE.search(text):
        return str(json.loads(found[1] + '"', strict=False)) + ("" if found[2] else "...")
    return _CUT_BEFORE_MESSAGE if '"Arguments"' in text else ""
