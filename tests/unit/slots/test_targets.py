"""Targets and settings of a process that are refused, with the reason."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from slotkeeper.slots.processes import check_settings
from slotkeeper.slots.targets import check_key, check_target, is_state_machine
from tests.unit.conftest import Account

ARN = "arn:aws:states:eu-west-1:123456789012:stateMachine:nightly"


@pytest.mark.parametrize(
    "target", ["nightly", "my job/1", ARN, "arn:aws-cn:states:cn-north-1:123456789012:stateMachine:a.b-c_1"]
)
def test_a_glue_job_name_and_a_state_machine_arn_are_targets(target: str) -> None:
    check_target(target)
    assert is_state_machine(target) == target.startswith("arn:")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("", "1 to 255 bytes"),
        ("x" * 256, "1 to 255 bytes"),
        ("é" * 128, "1 to 255 bytes"),
        (f"{ARN}:3", f"without version or alias, got '{ARN}:3'. Use {ARN}"),
        (f"{ARN}:PROD", "without version or alias"),
        ("arn:aws:states:eu-west-1:123456789012:execution:nightly:a", "the ARN of an execution"),
        ("arn:aws:states:eu-west-1:123456789012:express:nightly:a:b", "the ARN of an execution"),
        ("arn:aws:glue:eu-west-1:123456789012:job/nightly", "the ARN of another service"),
        ("arn:aws:lambda:eu-west-1:123456789012:function:f", "the ARN of another service"),
        ("arn:aws:states:eu-west-1:123456789012:activity:a", "stateMachine:NAME, got"),
        ("arn:aws:states:eu-west-1:1234:stateMachine:a", "stateMachine:NAME, got"),
        ("arn:aws:states:eu-west-1:123456789012:stateMachine:a b", "stateMachine:NAME, got"),
    ],
)
def test_other_targets_are_refused_with_the_reason(target: str, reason: str) -> None:
    with pytest.raises(ValueError, match="target must be") as refused:
        check_target(target)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"timeout_minutes": 0}, "timeout must be a whole number of minutes from 1 to 10079, got 0"),
        ({"timeout_minutes": 10_080}, "from 1 to 10079"),
        ({"timeout_minutes": True}, "got True"),
        ({"settle_seconds": -1}, "settle time must be a whole number of seconds from 0 to 86400, got -1"),
        ({"settle_seconds": 86_401}, "from 0 to 86400"),
        ({"settle_seconds": 60, "target": "job"}, "settle time is for state machines, got 60 s for Glue job 'job'"),
    ],
)
def test_settings_of_a_run_are_refused_with_the_reason(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011, the reason is compared
        check_settings("p", 1, **({"target": ARN} | settings))
    assert reason in str(refused.value)


KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234"


@pytest.mark.parametrize(
    ("own", "key", "is_refused"),
    [
        ("", "", False),
        ("", KEY, False),
        (KEY, KEY, False),
        ("1234", KEY, False),
        (KEY, "", True),
        (KEY, KEY.replace("1234", "5678"), True),
        ("34", KEY, True),
        ("alias/ours", KEY, True),  # only KMS knows its key
    ],
)
def test_a_state_machine_under_a_key_that_the_roles_may_not_use_is_refused(
    own: str, key: str, is_refused: bool
) -> None:
    described = {"encryptionConfiguration": {"type": "CUSTOMER_MANAGED_KMS_KEY", "kmsKeyId": own}} if own else {}
    with pytest.raises(ValueError, match="which the stack's roles may not use") if is_refused else nullcontext():
        check_key(ARN, described, key)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"timeout_minutes": 5, "settle_seconds": 60}, {"timeout_minutes": {"N": "5"}, "settle_seconds": {"N": "60"}}),
        ({}, {}),
    ],
)
def test_a_process_has_the_settings_of_its_runs_in_a_map(
    given: dict[str, int], stored: dict[str, Any], account: Account
) -> None:
    """The workflow's confirm sets the map, so that it is returned: it must exist."""
    account.processes.create("q", 1, ARN, **given)
    assert account.raw_item("q")["run_settings"] == {"M": stored}
    made = account.item("q")
    assert (made.timeout_minutes, made.settle_seconds) == (given.get("timeout_minutes"), given.get("settle_seconds", 0))
