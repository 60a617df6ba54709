"""Template properties that MiniStack ignores or misreads: TTL, point-in-time recovery, concurrency, recursion settings.

AWS: "CloudFormation: AWS::DynamoDB::Table" (TimeToLiveSpecification, PointInTimeRecoverySpecification),
"AWS::Lambda::Function" (ReservedConcurrentExecutions, RecursiveLoop): the resource has them once the stack is complete.
"AWS::Lambda::EventSourceMapping ScalingConfig": MaximumConcurrency is an integer. MiniStack stores a parameter's text,
and then fails at each poll of a queue.
"""

import functools
from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import PatchError, dynamodb, lambda_svc, provisioners


def apply() -> None:
    """Convert properties before, or set them after, MiniStack creates or updates the resource."""
    _around("AWS::DynamoDB::Table", then=_table)
    _around("AWS::Lambda::Function", then=_function)
    _around("AWS::Lambda::EventSourceMapping", first=_mapping)


def _table(name: str, properties: dict[str, Any]) -> None:
    wanted = properties.get("TimeToLiveSpecification")
    if wanted:
        specification = {"AttributeName": wanted["AttributeName"], "Enabled": str(wanted["Enabled"]).lower() == "true"}
        dynamodb._update_ttl({"TableName": name, "TimeToLiveSpecification": specification})
    recovery = properties.get("PointInTimeRecoverySpecification")
    if recovery:
        enabled = str(recovery["PointInTimeRecoveryEnabled"]).lower() == "true"
        specification = {"PointInTimeRecoveryEnabled": enabled}
        dynamodb._update_continuous_backups({"TableName": name, "PointInTimeRecoverySpecification": specification})


def _function(name: str, properties: dict[str, Any]) -> None:
    if "ReservedConcurrentExecutions" in properties:
        lambda_svc._functions[name]["concurrency"] = int(properties["ReservedConcurrentExecutions"])
    if properties.get("RecursiveLoop"):
        lambda_svc._put_function_recursion_config(name, {"RecursiveLoop": properties["RecursiveLoop"]})


def _mapping(properties: dict[str, Any]) -> dict[str, Any]:
    scaling = properties.get("ScalingConfig") or {}
    if "MaximumConcurrency" not in scaling:
        return properties
    return {**properties, "ScalingConfig": {**scaling, "MaximumConcurrency": int(scaling["MaximumConcurrency"])}}


def _around(
    kind: str,
    *,
    first: Callable[[dict[str, Any]], dict[str, Any]] = lambda properties: properties,
    then: Callable[[str, dict[str, Any]], None] = lambda _name, _properties: None,
) -> None:
    handlers = provisioners._RESOURCE_HANDLERS.get(kind)
    if not handlers or not {"create", "update"} <= set(handlers):
        raise PatchError(f"MiniStack has no create and update of {kind} any more")
    # create(logical id, properties, stack) and update(physical id, old properties, new properties, stack)
    handlers["create"] = _wrapped(handlers["create"], 1, first, then)
    handlers["update"] = _wrapped(handlers["update"], 2, first, then)


def _wrapped(
    original: Callable[..., Any],
    position: int,
    first: Callable[[dict[str, Any]], dict[str, Any]],
    then: Callable[[str, dict[str, Any]], None],
) -> Any:
    @functools.wraps(original)
    def provision(*args: Any, **kwargs: Any) -> Any:
        properties = first(args[position])
        answer = original(*args[:position], properties, *args[position + 1 :], **kwargs)
        then(answer[0] if isinstance(answer, tuple) else args[0], properties)
        return answer

    return provision
