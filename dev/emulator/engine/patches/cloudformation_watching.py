"""Resources that MiniStack refuses in a template: alarms over an expression, and saved Logs Insights queries.

AWS: "CloudFormation: AWS::CloudWatch::Alarm" (Metrics), "AWS::Logs::QueryDefinition". Here such an alarm can be
described, and stays in INSUFFICIENT_DATA, because expressions are not evaluated. A query has an id, and cannot be run.
"""

import uuid
from typing import Any

from dev.emulator.engine.emulator import PatchError, provisioners, wrap

KIND = "AWS::Logs::QueryDefinition"


def apply() -> None:
    """Accept both kinds."""
    wrap(provisioners, "_cw_metric_alarm_record", _recording)
    if KIND in provisioners._RESOURCE_HANDLERS:
        raise PatchError(f"MiniStack has {KIND}: remove this patch")
    provisioners._RESOURCE_HANDLERS[KIND] = {"create": _create, "update": _update, "delete": _delete}


def _recording(original: Any, name: str, properties: dict[str, Any]) -> dict[str, Any]:
    if not properties.get("Metrics"):
        return dict(original(name, properties))
    # MiniStack does not evaluate an alarm without a metric.
    plain = {key: value for key, value in properties.items() if key != "Metrics"}
    kept: dict[str, Any] = original(name, {**plain, "Namespace": "-", "MetricName": "-"})
    return {**kept, "Namespace": "", "MetricName": ""}


def _create(_logical_id: str, _properties: dict[str, Any], _stack: str) -> tuple[str, dict[str, Any]]:
    name = str(uuid.uuid4())
    return name, {"QueryDefinitionId": name}


def _update(name: str, _old: dict[str, Any], _new: dict[str, Any], _stack: str) -> tuple[str, dict[str, Any]]:
    return name, {"QueryDefinitionId": name}


def _delete(_name: str, _properties: dict[str, Any]) -> None:
    return None
