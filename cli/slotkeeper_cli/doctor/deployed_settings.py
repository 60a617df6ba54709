"""Settings of the stack's functions, tables and rules: as deployed, and as the template declares them.

A `template` contains the template's resources, by logical id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper_cli.stack_resources import StackResource

# Of a function without a setting (Lambda API Reference, GetFunctionRecursionConfig).
DEFAULT_RECURSION = "Terminate"


@dataclass(frozen=True)
class FunctionSettings:
    """A function's timeout in seconds, and its reserved concurrency; None if it has none."""

    logical_id: str
    timeout: int
    reserved: int | None


@dataclass(frozen=True)
class RecursionSetting:
    """A function's setting of Lambda's recursive-loop detection."""

    function: str
    deployed: str
    template: str

    @property
    def differs(self) -> bool:
        return self.deployed != self.template


@dataclass(frozen=True)
class TableSettings:
    """Whether a table has a TTL (`expires`) and point-in-time recovery (`recoverable`), and whether it should have."""

    logical_id: str
    expires: bool
    expires_wanted: bool
    recoverable: bool
    recoverable_wanted: bool


def function_settings(client: Any, function: StackResource) -> FunctionSettings:
    timeout = client.get_function_configuration(FunctionName=function.name)["Timeout"]
    reserved = client.get_function_concurrency(FunctionName=function.name).get("ReservedConcurrentExecutions")
    return FunctionSettings(function.logical_id, timeout, reserved)


def recursion_setting(client: Any, function: StackResource, template: Mapping[str, Any]) -> RecursionSetting:
    deployed = client.get_function_recursion_config(FunctionName=function.name)["RecursiveLoop"]
    wanted = template.get(function.logical_id, {}).get("Properties", {}).get("RecursiveLoop", DEFAULT_RECURSION)
    return RecursionSetting(function.logical_id, deployed, wanted)


def table_settings(client: Any, table: StackResource, template: Mapping[str, Any]) -> TableSettings:
    time_to_live = client.describe_time_to_live(TableName=table.name)["TimeToLiveDescription"]
    backups = client.describe_continuous_backups(TableName=table.name)["ContinuousBackupsDescription"]
    recovery = backups.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus")
    wanted = template.get(table.logical_id, {}).get("Properties", {})
    return TableSettings(
        table.logical_id,
        time_to_live.get("TimeToLiveStatus") in ("ENABLED", "ENABLING"),
        _is_true(wanted.get("TimeToLiveSpecification", {}).get("Enabled")),
        recovery == "ENABLED",
        _is_true(wanted.get("PointInTimeRecoverySpecification", {}).get("PointInTimeRecoveryEnabled")),
    )


def rule_state(client: Any, rule: StackResource) -> str:
    """The state of an EventBridge rule. The physical id of a rule on a custom bus is `bus|name`."""
    bus, _, name = rule.name.rpartition("|")
    return str(client.describe_rule(Name=name, **({"EventBusName": bus} if bus else {}))["State"])


def _is_true(value: Any) -> bool:
    """The truth of a template's property, which may be a text."""
    return str(value).lower() == "true"
