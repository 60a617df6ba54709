"""The retry policy that operators put into SSM Parameter Store. Nothing is decided by a policy that was not read."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.retry.policy import Policy
from slotkeeper.schema import InvalidBody, compile_schema, decode

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

SCHEMA_FILE = Path(__file__).with_name("policy.schema.json")


class InvalidPolicy(ValueError):
    """A parameter's value that is no policy; the text says what was wrong and what was expected."""


class PolicyUnavailable(Exception):
    """This container has not read a policy yet; the text says why the last reading gave none."""


class PolicyParameter:
    """The policy in a parameter, read again after a while. A reading that gives no policy leaves the last one in force.

    Not by Powertools' SSMProvider: that keeps only what it could read, so that every message would ask again for a
    parameter which is missing or throttled.

    Args:
        name: the parameter's, as GetParameter takes it.
        on_invalid: receives, once for each reading that gave no policy, why it gave none and what follows.
        keep_seconds: for how long a reading holds, one that failed too.
        clock: seconds that only ever grow.
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
        """The policy that was read last.

        Raises:
            PolicyUnavailable: no reading has given one yet. The built-in policy is no substitute: it may dead-letter a
                request that the operator's policy would retry.
        """
        now = self._clock()
        if now - self._read_at >= self._keep_seconds:
            self._read_at = now
            self._read()
        if self._policy is None:
            raise PolicyUnavailable(self._unread)
        return self._policy

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
        follows = "the policy read before is used" if self._policy else "failed attempts wait until there is a policy"
        self._on_invalid(f"{self._unread}; {follows}, and the parameter is read again after {self._keep_seconds:g} s")


def parse_policy(text: str) -> Policy:
    """Reads a parameter's value.

    Raises:
        InvalidPolicy: not JSON, not what policy.schema.json says, or values that do not go together.
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
