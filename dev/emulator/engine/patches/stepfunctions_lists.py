"""ListExecutions has redrives and their filter; DescribeExecution can leave an execution's data out.

AWS: "Step Functions API Reference: ListExecutions" (redriveFilter; redriveCount and redriveDate of each entry),
"DescribeExecution" (includedData METADATA_ONLY: without the data that a customer managed key encrypts).
MiniStack ignores both parameters.
"""

import json
from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import responses, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn

LARGEST_PAGE = 1000
_EVERY = 10**9
_ENCRYPTED = ("input", "output", "error", "cause")


def apply() -> None:
    """Extend both actions."""
    wrap(sfn, "_list_executions", _list_executions)
    wrap(sfn, "_describe_execution", _describe_execution)


def _list_executions(original: Callable[[Any], Any], data: dict[str, Any]) -> Any:
    answer = original({**data, "maxResults": _EVERY})
    if answer[0] >= 400:
        return answer
    wanted = []
    for entry in json.loads(answer[2])["executions"]:
        execution = sfn._executions[entry["executionArn"]]
        count = execution.get("redriveCount", 0)
        if data.get("redriveFilter") in (None, "REDRIVEN" if count else "NOT_REDRIVEN"):
            date = {"redriveDate": execution["redriveDate"]} if count else {}
            wanted.append(entry | {"redriveCount": count} | date)
    page = wanted[: int(data.get("maxResults") or LARGEST_PAGE)]
    more = {"nextToken": sfn._encode_execution_token(page[-1])} if len(wanted) > len(page) else {}
    return responses.json_response({"executions": page} | more)


def _describe_execution(original: Callable[[Any], Any], data: dict[str, Any]) -> Any:
    answer = original(data)
    if answer[0] >= 400 or data.get("includedData") != "METADATA_ONLY":
        return answer
    fields = {name: value for name, value in json.loads(answer[2]).items() if name not in _ENCRYPTED}
    return responses.json_response(fields)
