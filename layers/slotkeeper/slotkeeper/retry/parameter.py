"""The retry policy in SSM Parameter Store. Without a policy that was read, no retry is decided."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.retry.policy import BUILT_IN, Policy
from slotkeeper.schema import InvalidBody, compile_schema, decode

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

SCHEMA_FILE = Path(__file__).with_name("policy.schema.json")


class InvalidPolicy(ValueError):
    """A parameter's value that is not a valid policy. The message states what is wrong and what was expected."""


class PolicyUnavailable(Exception):
    """This container has not read a policy yet. The message states why the last read failed."""


class PolicyParameter:
    """The policy in a parameter, read again after `keep_seconds`. After a failed read the last policy stays in use.

    Powertools' SSMProvider is not used, because it does not cache failures: with it, every message would read a
    parameter that is missing or throttled.

    Args:
        name: the parameter's name, as GetParameter accepts it.
        on_invalid: receives, once per failed read, why it failed and what happens next.
        keep_seconds: seconds between two reads, also after a failed read.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        ssm: SSMClient,
        name: str,
        *,
        on_invalid: Callable[[str], None],
        keep_seconds: float = 60,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 <= keep_seconds < inf:
            raise ValueError(f"keep_seconds must be a finite number of seconds, 0 or more, got {keep_seconds!r}")
        self._ssm = ssm
        self._name = name
        self._on_invalid = on_invalid
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._policy: Policy | None = None
        self._unread = ""
        self._read_at = -inf

    def get(self) -> Policy:
        """Return the policy that was read last.

        Raises:
            PolicyUnavailable: no read has succeeded yet. The built-in policy is not used instead, because it could
                dead-letter a request that the operator's policy would retry.
        """
        now = self._clock()
        if now - self._read_at >= self._keep_seconds:
            self._read_at = now
            self._read()
        if self._policy is None:
            raise PolicyUnavailable(self._unread)
        return self._policy

    def get_for_downstream(self) -> Policy:
        """Return the policy for the settings of downstreams: the built-in one if no read has succeeded yet.

        Unlike `get` it decides nothing that a later policy cannot undo.
        """
        try:
            return self.get()
        except PolicyUnavailable:
            return BUILT_IN

    def _read(self) -> None:
        try:
            self._policy = parse_policy(self._ssm.get_parameter(Name=self._name)["Parameter"]["Value"])
        except InvalidPolicy as error:
            self._report(f"is not valid: {error}")
        except ClientError as error:
            self._report(f"cannot be read: {error.response.get('Error', {}).get('Code', 'an error without a code')}")
        except BotoCoreError as error:
            self._report(f"cannot be read: {error}")

    def _report(self, what: str) -> None:
        self._unread = f"retry policy: SSM parameter {self._name} {what}"
        follows = "the policy read before is used" if self._policy else "failed attempts wait until a policy is read"
        self._on_invalid(f"{self._unread}; {follows}, and the parameter is read again after {self._keep_seconds:g} s")


class BuiltInPolicy:
    """The built-in policy, for a consumer without a parameter."""

    def get(self) -> Policy:
        return BUILT_IN

    get_for_downstream = get


def parse_policy(text: str) -> Policy:
    """Parse a parameter's value.

    Raises:
        InvalidPolicy: the value is not JSON, does not match policy.schema.json, or its values contradict each other.
    """
    try:
        document = decode(text, _validator())
    except InvalidBody as error:
        raise InvalidPolicy(f"value{str(error).removeprefix('body')}") from error
    try:
        return Policy.from_document(document)
    except ValueError as error:
        raise InvalidPolicy(f"value.{error}") from error


@cache
def _validator() -> Callable[[Any], Any]:
    return compile_schema(SCHEMA_FILE)
