"""Templates: properties and resources that MiniStack's CloudFormation and API Gateway ignore, misread or refuse."""

import functools
import uuid
from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import PatchError, apigateway, dynamodb, lambda_svc, patch, provisioners, wrap

GATEWAY_RESPONSES = "x-amazon-apigateway-gateway-responses"
QUERY = "AWS::Logs::QueryDefinition"


@patch
def cloudformation_properties() -> None:
    """TTL, point-in-time recovery, concurrency and recursion settings of a template are those of its resources.

    AWS: "CloudFormation: AWS::DynamoDB::Table" (TimeToLiveSpecification, PointInTimeRecoverySpecification),
    "AWS::Lambda::Function" (ReservedConcurrentExecutions, RecursiveLoop): the resource has them once the stack is
    complete. "AWS::Lambda::EventSourceMapping ScalingConfig": MaximumConcurrency is an integer.
    MiniStack ignores the first four. It stores the text of a parameter as MaximumConcurrency, and then fails at each
    poll of a queue.
    Shown by the doctor of tests/deployed/test_operator_command.py.
    """
    _around("AWS::DynamoDB::Table", then=_table)
    _around("AWS::Lambda::Function", then=_function)
    _around("AWS::Lambda::EventSourceMapping", first=_mapping)


def _table(name: str, properties: dict[str, Any]) -> None:
    if wanted := properties.get("TimeToLiveSpecification"):
        specification = {"AttributeName": wanted["AttributeName"], "Enabled": _is_true(wanted["Enabled"])}
        dynamodb._update_ttl({"TableName": name, "TimeToLiveSpecification": specification})
    if wanted := properties.get("PointInTimeRecoverySpecification"):
        specification = {"PointInTimeRecoveryEnabled": _is_true(wanted["PointInTimeRecoveryEnabled"])}
        dynamodb._update_continuous_backups({"TableName": name, "PointInTimeRecoverySpecification": specification})


def _is_true(value: Any) -> bool:
    return str(value).lower() == "true"


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
    """Convert properties before MiniStack creates or updates a resource of this kind, or set them after it."""
    handlers = provisioners._RESOURCE_HANDLERS.get(kind)
    if not handlers or not {"create", "update"} <= set(handlers):
        raise PatchError(f"MiniStack has no create and update of {kind} any more")

    def wrapped(original: Callable[..., Any], position: int) -> Any:
        @functools.wraps(original)
        def provision(*args: Any, **kwargs: Any) -> Any:
            properties = first(args[position])
            answer = original(*args[:position], properties, *args[position + 1 :], **kwargs)
            then(answer[0] if isinstance(answer, tuple) else args[0], properties)
            return answer

        return provision

    # create(logical id, properties, stack) and update(physical id, old properties, new properties, stack)
    handlers["create"] = wrapped(handlers["create"], 1)
    handlers["update"] = wrapped(handlers["update"], 2)


@patch
def cloudformation_watching() -> None:
    """A template may have alarms over an expression, and saved Logs Insights queries.

    AWS: "CloudFormation: AWS::CloudWatch::Alarm" (Metrics), "AWS::Logs::QueryDefinition".
    MiniStack refuses both. Here such an alarm can be described, and stays in INSUFFICIENT_DATA, because expressions are
    not evaluated. A query has an id, and cannot be run.
    """
    wrap(provisioners, "_cw_metric_alarm_record", _recording)
    if QUERY in provisioners._RESOURCE_HANDLERS:
        raise PatchError(f"MiniStack has {QUERY}: remove this patch")

    def made(*_: Any) -> tuple[str, dict[str, Any]]:
        name = str(uuid.uuid4())
        return name, {"QueryDefinitionId": name}

    handlers = {"create": made, "update": lambda name, *_: (name, {"QueryDefinitionId": name})}
    provisioners._RESOURCE_HANDLERS[QUERY] = handlers | {"delete": lambda *_: None}


def _recording(original: Any, name: str, properties: dict[str, Any]) -> dict[str, Any]:
    if not properties.get("Metrics"):
        return dict(original(name, properties))
    # MiniStack does not evaluate an alarm without a metric.
    plain = {key: value for key, value in properties.items() if key != "Metrics"}
    kept: dict[str, Any] = original(name, {**plain, "Namespace": "-", "MetricName": "-"})
    return {**kept, "Namespace": "", "MetricName": ""}


@patch
def apigateway_responses() -> None:
    """An imported REST API has the gateway responses of its OpenAPI document.

    AWS: "API Gateway extensions to OpenAPI: x-amazon-apigateway-gateway-responses": an import sets each of them, as
    PutGatewayResponse does.
    MiniStack renders customized responses, but ignores those of an imported document.
    Shown by tests/deployed/test_chatbot.py.
    """
    wrap(apigateway, "_import_rest_api", _with_responses)


def _with_responses(original: Callable[..., str], document: dict[str, Any], *args: Any) -> str:
    """Set them immediately after the import, so that the first deployment has them."""
    api_id = original(document, *args)
    for response_type, response in document.get(GATEWAY_RESPONSES, {}).items():
        status, _, body = apigateway._put_gateway_response(api_id, response_type, response)
        if status >= 400:
            raise ValueError(f"gateway response {response_type} was refused: {body!r}")
    return api_id
