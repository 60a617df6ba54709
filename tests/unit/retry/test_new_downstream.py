"""An operator's setting is stored for a downstream that no attempt has called yet."""

from __future__ import annotations

from collections.abc import Callable

import boto3
import pytest
from moto import mock_aws

from slotkeeper.retry.downstream import Health, force_open, set_limit
from slotkeeper.retry.downstream_table import DownstreamTable
from tests.support.tables import create_table


@pytest.mark.parametrize("set_by_operator", [lambda health: force_open(health, 1.0, "why"), lambda h: set_limit(h, 3)])
@mock_aws
def test_a_setting_of_a_new_downstream_is_stored(set_by_operator: Callable[[Health], Health]) -> None:
    create_table(boto3.client("dynamodb", region_name="us-east-1"), "downstreams", "downstream")
    table = DownstreamTable(boto3.client("dynamodb", region_name="us-east-1"), "downstreams")
    table.change("new", lambda health: (set_by_operator(health), None))
    assert table.read("new") == set_by_operator(Health())
