"""Template properties that MiniStack accepts and drops: TTL, reserved concurrency, recursive loop detection.

AWS: "CloudFormation: AWS::DynamoDB::Table" (TimeToLiveSpecification), "AWS::Lambda::Function"
(ReservedConcurrentExecutions, RecursiveLoop): the resource has them once the stack is complete.
"""

import functools
from collections.abc import Callable
from typing import Any

from local.engine.emulator import PatchError, dynamodb, lambda_svc, provisioners


def apply() -> None:
    """Set the properties after MiniStack has created or updated the resource."""
    _afterwards("AWS::DynamoDB::Table", _table)
    _afterwards("AWS::Lambda::Function", _function)


def _table(name: str, properties: dict[str, Any]) -> None:
    wanted = properties.get("TimeToLiveSpecification")
    if wanted:
        specification = {"AttributeName": wanted["AttributeName"], "Enabled": str(wanted["Enabled"]).lower() == "true"}
        dynamodb._update_ttl({"TableName": name, "TimeToLiveSpecification": specification})


def _function(name: str, properties: dict[str, Any]) -> None:
    if "ReservedConcurrentExecutions" in properties:
        lambda_svc._functions[name]["concurrency"] = int(properties["ReservedConcurrentExecutions"])
    if properties.get("RecursiveLoop"):
        lambda_svc._put_function_recursion_config(name, {"RecursiveLoop": properties["RecursiveLoop"]})


def _afterwards(kind: str, then: Callable[[str, dict[str, Any]], None]) -> None:
    handlers = provisioners._RESOURCE_HANDLERS.get(kind)
    if not handlers or not {"create", "update"} <= set(handlers):
        raise PatchError(f"MiniStack has no create and update of {kind} any more")
    # create(logical id, properties, stack) and update(physical id, old properties, new properties, stack)
    handlers["create"] = _wrapped(handlers["create"], 1, then)
    handlers["update"] = _wrapped(handlers["update"], 2, then)


def _wrapped(original: Callable[..., Any], position: int, then: Callable[[str, dict[str, Any]], None]) -> Any:
    @functools.wraps(original)
    def provision(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        then(answer[0] if isinstance(answer, tuple) else args[0], args[position])
        return answer

    return provision
