"""The policy in SSM Parameter Store, and the fallback if it cannot be read."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from slotkeeper.retry.policy import (
    MAX_AGE_SECONDS,
    MAX_ATTEMPTS,
    SCHEMA_FILE,
    InvalidPolicy,
    PolicyParameter,
    PolicyUnavailable,
    Rule,
    parse_policy,
)
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.quick_clients import shared_client

NAME = "/slotkeeper/retry-policy"
SCHEMA = json.loads(SCHEMA_FILE.read_text())
GOOD = '{"default": {"max_attempts": 3}}'


class Store:
    """A parameter with a clock, and a client that counts its calls and can fail."""

    def __init__(self, aws: AwsAccount) -> None:
        self._aws, self.ssm = aws, shared_client("ssm")
        self.now = 1000.0
        self.calls = 0
        self.reported: list[str] = []
        self.trouble: Exception | None = None
        self.parameter = PolicyParameter(self, NAME, on_invalid=self.reported.append, clock=lambda: self.now)

    def get_parameter(self, **request: Any) -> Any:
        self.calls += 1
        if self.trouble:
            raise self.trouble
        return self.ssm.get_parameter(**request)

    def put(self, value: str) -> None:
        self._aws.parameters[NAME] = value

    def attempts_a_minute_later(self) -> int | None:
        self.now += 60
        return self.attempts()

    def attempts(self) -> int | None:
        """The policy's maximum of attempts, or None without a policy."""
        try:
            return int(self.parameter.latest().default.max_attempts)
        except PolicyUnavailable:
            return None


@pytest.fixture
def store(aws: AwsAccount) -> Store:
    return Store(aws)


def refused(code: str, status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetParameter")


TROUBLE = {
    "throttled": refused("ThrottlingException"),
    "not reachable": EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
    "missing": refused("ParameterNotFound"),
}
INVALID = ["{", '{"default": {"max_attempts": 0}}', '{"default": {"base_seconds": 9000}}']


def test_a_missing_policy_raises_and_is_reported_once_with_its_cause(store: Store) -> None:
    with pytest.raises(
        PolicyUnavailable, match="SSM parameter /slotkeeper/retry-policy cannot be read: ParameterNotFound"
    ):
        store.parameter.latest()
    assert {store.attempts() for _ in range(100)} == {None}
    assert store.calls == 1
    assert store.reported == [
        "retry policy: SSM parameter /slotkeeper/retry-policy cannot be read: ParameterNotFound; "
        "failed attempts wait until a policy is read, and the parameter is read again after 60 s"
    ]


@pytest.mark.parametrize(
    ("value", "trouble"), [(value, None) for value in INVALID] + [(GOOD, error) for error in TROUBLE.values()]
)
def test_an_error_leaves_the_policy_that_was_read_before_or_none(
    store: Store, value: str, trouble: Exception | None
) -> None:
    seen = []
    for stored, error in ((value, trouble), (GOOD, None), (value, trouble), (value, trouble)):
        store.put(stored)
        store.trouble = error
        seen.append(store.attempts_a_minute_later())
    assert seen == [None, 3, 3, 3]
    first, *later = store.reported
    assert "failed attempts wait until a policy is read" in first
    assert ["the policy read before is used" in text for text in later] == [True, True]


BAD_VALUES = {
    "not JSON": ("{", "value is not JSON"),
    "not an object": ("[]", "value must be object (got [])"),
    "an unknown field": ('{"defaults": {}}', "value must not contain defaults; allowed are default, errors"),
    "a name without its unit": ('{"default": {"base": 1}}', "allowed are backoff, jitter, base_seconds, cap_seconds"),
    "an unknown backoff": ('{"default": {"backoff": "cubic"}}', "value.default.backoff must be one of"),
    "an unknown jitter": ('{"default": {"jitter": "FULL"}}', "value.default.jitter must be one of"),
    "base zero": ('{"default": {"base_seconds": 0}}', "value.default.base_seconds must be bigger than 0"),
    "base not a number": ('{"default": {"base_seconds": NaN}}', "value.default: Rule.base must be a number"),
    "base in words": ('{"default": {"base_seconds": "30"}}', 'base_seconds must be number (got "30")'),
    "cap endless": ('{"default": {"cap_seconds": 1e999}}', "value.default.cap_seconds must be smaller than"),
    "base above cap": (
        '{"default": {"base_seconds": 7200}}',
        "value.default: Rule.cap must be at least base",
    ),
    "cap below base": (
        '{"errors": {"X": {"cap_seconds": 3}}}',
        "value.errors.X: Rule.cap must be at least base, which is 30.0, got 3 (omitted fields are inherited)",
    ),
    "no attempt": ('{"default": {"max_attempts": 0}}', "max_attempts must be bigger than or equal to 1"),
    "a hundred and one attempts": ('{"errors": {"X": {"max_attempts": 101}}}', "value.errors.X.max_attempts must"),
    "half an attempt": ('{"default": {"max_attempts": 1.5}}', "max_attempts must be integer (got 1.5)"),
    "older than a month": ('{"default": {"max_age_seconds": 2592001}}', "value.default.max_age_seconds must"),
    "counts in words": ('{"default": {"counts": "no"}}', "value.default.counts must be boolean"),
    "a rule of another type": ('{"errors": {"X": 7}}', "value.errors.X must be object"),
    "an error without a name": ('{"errors": {"": {}}}', "value.errors must be named by"),
    "nested without end": ("[" * 100_000, "value is not JSON"),
}


@pytest.mark.parametrize(("value", "expected"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_an_invalid_value_is_refused_with_its_position(value: str, expected: str) -> None:
    with pytest.raises(InvalidPolicy) as refusal:
        parse_policy(value)
    assert expected in str(refusal.value)


def test_every_field_of_a_policy_is_read() -> None:
    value = {
        "default": {"backoff": "linear", "jitter": "none", "base_seconds": 1, "cap_seconds": 2, "max_attempts": 3},
        "errors": {"X": {"max_age_seconds": 4.5, "counts": False}},
    }
    policy = parse_policy(json.dumps(value))
    assert (policy.default, policy.errors["X"]) == (
        Rule("linear", "none", 1, 2, 3),
        Rule("linear", "none", 1, 2, 3, 4.5, counts=False),
    )


def test_the_schema_allows_what_a_rule_allows() -> None:
    rule = SCHEMA["definitions"]["rule"]["properties"]
    most = {name: field["maximum"] for name, field in rule.items() if "maximum" in field}
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert most == {
        "base_seconds": MAX_AGE_SECONDS,
        "cap_seconds": MAX_AGE_SECONDS,
        "max_attempts": MAX_ATTEMPTS,
        "max_age_seconds": MAX_AGE_SECONDS,
    }
    assert {name.removesuffix("_seconds") for name in rule} == set(Rule.__dataclass_fields__)
